"""Regular expressions that are compiled when they are first used, and kept beside Python's compiled modules.

A call needs few of all that there are, but compiling those of a small build would take a tenth of the driver's
own time. What is kept is the code that `re` itself made; Python checks it when it takes it, and for another
Python or pattern there is none.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, AnyStr, cast

from mlir_offload.toolchain.tables import replace_file

# Flags, code, number of groups, names of groups. The code is an array of unsigned numbers of 32 bits.
_Form = tuple[int, bytes, int, dict[str, int]]
# Patterns that contain names of a program would let the file grow for ever.
_MOST = 2000
_FAILURES = (ImportError, AttributeError, TypeError, ValueError, RuntimeError, OverflowError)
_new: dict[tuple[str | bytes, int], _Form] = {}


class _LazyPattern:
    """Stands for a compiled pattern, whose members it takes over with the first use."""

    def __init__(self, compile_it: Callable[[], re.Pattern[str] | re.Pattern[bytes]]) -> None:
        self.__compile = compile_it

    def __getattr__(self, name: str) -> object:
        compiled = self.__compile()
        for member in (
            "match",
            "search",
            "fullmatch",
            "sub",
            "subn",
            "split",
            "findall",
            "finditer",
        ):
            setattr(self, member, getattr(compiled, member))
        self.__compile = lambda: compiled
        return getattr(compiled, name)


def pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used."""
    return pattern_of(lambda: compile_pattern(source, flags))


def pattern_of(compile_it: Callable[[], re.Pattern[AnyStr]]) -> re.Pattern[AnyStr]:
    """Return a regular expression that the function makes when it is first used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(compile_it))


def compile_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` does, from what an earlier process kept if there is any."""
    key = (source, int(flags))
    try:
        form = _kept().get(key)
        if form is None:
            form = _new[key] = _compiled(source, int(flags))
        return _pattern(source, form)
    except _FAILURES:
        # Another Python than those that this was written for.
        _new.pop(key, None)
        return re.compile(source, flags)


def keep_patterns() -> None:
    """Keep what this process compiled, as Python keeps its modules: not if it must not write them."""
    if not _new or sys.dont_write_bytecode:
        return
    forms = {**_kept(), **_new}
    if len(forms) <= _MOST:
        with contextlib.suppress(OSError):
            replace_file(_file(), marshal.dumps((_stamp(), forms)))


def _pattern(source: AnyStr, form: _Form) -> re.Pattern[AnyStr]:
    flags, code, groups, names = form
    by_number: list[str | None] = [None] * (groups + 1)
    for name, number in names.items():
        by_number[number] = name
    words = memoryview(code).cast("I").tolist()
    made: re.Pattern[AnyStr] = _sre().compile(source, flags, words, groups, names, tuple(by_number))
    return made


def _compiled(source: str | bytes, flags: int) -> _Form:
    """Do what `re.compile` does (Lib/re/_compiler.py), up to the object."""
    parser, compiler = import_module("re._parser"), import_module("re._compiler")
    parsed = parser.parse(source, flags)
    code = compiler._code(parsed, flags)  # noqa: SLF001 (there is no public name)
    state = parsed.state
    words = b"".join(word.to_bytes(4, sys.byteorder) for word in code)
    return flags | state.flags, words, state.groups - 1, dict(state.groupdict)


@cache
def _kept() -> dict[tuple[str | bytes, int], _Form]:
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        stamp, forms = marshal.loads(_file().read_bytes())  # noqa: S302 (trusted as modules are)
        if stamp == _stamp():
            return dict(forms)
    return {}


def _stamp() -> tuple[str, int, int]:
    return sys.version, _sre().MAGIC, _sre().CODESIZE


def _file() -> Path:
    return Path(importlib.util.cache_from_source(__file__)).with_suffix(".patterns")


def _sre() -> Any:
    return import_module("_sre")
