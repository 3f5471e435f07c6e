"""Regular expressions that are compiled when they are first used, and kept compiled for the next call.

A call uses about a hundred of all that there are. Compiling them takes 10 ms, loading them 1.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import AnyStr, cast

_MEMBERS = ("match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")


class _LazyPattern:
    """Stands for a compiled pattern, whose members it takes over with the first use."""

    def __init__(self, compile_it: Callable[[], re.Pattern[str] | re.Pattern[bytes]]) -> None:
        self.__compile = compile_it

    def __getattr__(self, name: str) -> object:
        found = self.__compile()
        for member in _MEMBERS:
            setattr(self, member, getattr(found, member))
        self.__compile = lambda: found
        return getattr(found, name)


def pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used."""
    return pattern_of(lambda: compiled(source, flags))


def pattern_of(compile_it: Callable[[], re.Pattern[AnyStr]]) -> re.Pattern[AnyStr]:
    """Return a regular expression that the function makes when it is first used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(compile_it))


def compiled(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return `re.compile(source, flags)`, from what an earlier call kept of it if possible."""
    return _store().compiled(source, int(flags))


def keep_patterns() -> None:
    """Keep the patterns that this call compiled for the next one."""
    _store().save()


class PatternStore:
    """Compiled patterns in a file, kept as Python keeps its modules: next to them, for one release of Python.

    `re` has no way to keep a pattern: pickle compiles it again. The parts are those that `re._compiler.compile`
    gives to `_sre.compile`, which checks them. If a release of Python has other parts, patterns are compiled.
    """

    def __init__(self, file: Path) -> None:
        """Read what the file holds, if it is of this Python."""
        self._file = file
        self._stamp = (sys.hexversion, sys.implementation.name)
        self._parts: dict[tuple[str | bytes, int], bytes] = {}
        self._is_changed = False
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
            stamp, parts = marshal.loads(file.read_bytes())  # noqa: S302 (trusted as modules are)
            if stamp == self._stamp:
                self._parts = parts

    def compiled(self, source: AnyStr, flags: int) -> re.Pattern[AnyStr]:
        """Return `re.compile(source, flags)`."""
        kept = self._parts.get((source, flags))
        try:
            make: Callable[..., re.Pattern[AnyStr]] = import_module("_sre").compile
            if kept is not None:
                return make(source, *marshal.loads(kept))  # noqa: S302 (as above)
            parts = _compiled_parts(source, flags)
            found = make(source, *parts)
        except (ImportError, AttributeError, TypeError, ValueError, EOFError, RuntimeError):
            return re.compile(source, flags)
        self._parts[source, flags] = marshal.dumps(parts)
        self._is_changed = True
        return found

    def save(self) -> None:
        """Write the file if a pattern is new, in one rename: other processes read it meanwhile."""
        if not self._is_changed or sys.dont_write_bytecode:
            return
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            try:
                temporary.write_bytes(marshal.dumps((self._stamp, self._parts)))
                temporary.replace(self._file)
            finally:
                temporary.unlink(missing_ok=True)


def _compiled_parts(
    source: str | bytes, flags: int
) -> tuple[int, list[int], int, dict[str, int], tuple[str | None, ...]]:
    """Return what `_sre.compile` takes besides the source: flags, code, number and names of groups."""
    parsed = import_module("re._parser").parse(source, flags)
    state = parsed.state
    names: list[str | None] = [None] * state.groups
    for name, number in state.groupdict.items():
        names[number] = name
    code = [int(word) for word in import_module("re._compiler")._code(parsed, flags)]  # noqa: SLF001
    return flags | state.flags, code, state.groups - 1, state.groupdict, tuple(names)


@cache
def _store() -> PatternStore:
    return PatternStore(Path(importlib.util.cache_from_source(__file__)).with_suffix(".patterns"))
