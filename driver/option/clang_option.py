"""Options of clang that this driver does not have: passed on, ignored or rejected, according to a table."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.driver.option.row import Option, nearest
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.tables import load_table

IGNORED, REJECTED = "ignored", "rejected"
# clang has more options with these prefixes than its help lists.
_OPEN = ("-f", "-m", "-W", "-g", "-R")
# clang reads their value only from the next word; the joined form is another option.
_SEPARATE = frozenset(("-b", "-e", "-u", "-z"))
# The long names of these options have a joined value; the short names take it as the next word.
_SPACED = frozenset(("-idirafter", "-u", "-Xlinker"))
_VALUE = "<"
_LIKE = 0.8


class Verdict(Struct, frozen=True):
    """The treatment of an option: `to` lists its recipients (c, code, link), `reason` explains a rejection."""

    verdict: str
    to: tuple[str, ...] = ()
    reason: str = ""


class ClangOption(Struct, frozen=True):
    """An option as spelled in clang's help."""

    label: str

    @property
    def name(self) -> str:
        """Return the option without its value."""
        return self.label.partition(_VALUE)[0].rstrip(" ")

    @property
    def is_separate(self) -> bool:
        """Return whether the value may be the next word."""
        return f" {_VALUE}" in self.label

    @property
    def is_joined(self) -> bool:
        """Return whether the value may be part of the word."""
        return _VALUE in self.label and self.name not in _SEPARATE


@functools.cache
def _table() -> Mapping[str, Any]:
    return load_table("mlir_offload.driver", "clang_options")


@functools.cache
def known_options(part: str = "options") -> tuple[ClangOption, ...]:
    """Return the options that clang's help lists; for `more`, options that it accepts but does not list."""
    return tuple(map(ClangOption, _table()[part].splitlines()))


def clang_source() -> str:
    """Return the command that printed the options of the table."""
    return str(_table()["source"])


@functools.cache
def _by_name() -> Mapping[str, ClangOption]:
    return {one.name: one for one in (*known_options(), *known_options("more"))}


def find_clang_option(argument: str) -> ClangOption | None:
    """Return the clang option that an argument spells; None if there is none."""
    exact = _by_name()
    name = argument.partition(" ")[0]
    if name in exact and (name == argument or exact[name].is_separate):
        return exact[name]
    joined = [one for one in exact.values() if one.is_joined and argument.startswith(one.name)]
    found = max(joined, key=lambda one: len(one.name), default=None)
    if found is not None:
        return found
    # Also `--name value` for `--name=`.
    return exact.get(f"{argument}=") if argument.startswith("--") else None


def short_spelling(argument: str, rest: list[str]) -> tuple[str, ...]:
    """Return the words for an option that clang also accepts under a longer name; empty for other options.

    The value of a long name is joined, or the next word, which is taken from `rest`.
    """
    name, joined, value = argument.partition("=")
    if f"{name}{joined}" in _table()["two_dashes"].split():
        return (argument[1:],)
    names = _table()["long_names"]
    if joined:
        short = names.get(f"{name}=")
        return (short, value) if short in _SPACED else (f"{short}{value}",) if short else ()
    if name in names:
        return (names[name],)
    short = names.get(f"{name}=")
    if short is None:
        return ()
    if not rest:
        msg = f"option '{name}' needs a value"
        raise UsageError(msg, hint=f"write {name} VALUE")
    return (short, rest.pop())


def judge(label: str) -> Verdict:
    """Return the treatment of an option, given its label or an argument."""
    for rule in _table()["rules"]:
        if any(fnmatchcase(label, pattern) for pattern in rule["patterns"]):
            return Verdict(
                rule["verdict"], tuple(rule.get("to", "").split()), rule.get("reason", "")
            )
    return Verdict(REJECTED, reason="it is not known")


def own_row(label: str) -> Option | None:
    """Return the row of this driver's table for an option, given its label; None if there is none."""
    found = COMPILER.find(ClangOption(label).name)
    if found is None:
        return None
    row, name = found
    is_whole = ClangOption(label).name in {name, name.rstrip("=")}
    return row if is_whole or row.kind in {"prefix", "keyed"} else None


def take(options: CompileOptions, argument: str, rest: list[str]) -> CompileOptions | None:
    """Return the options with a clang option applied; None if it is not one. Raises UsageError if rejected."""
    found = find_clang_option(argument)
    if found is None and (not argument.startswith(_OPEN) or _is_mistyped(argument)):
        return None
    words = _words(found, argument, rest)
    verdict = judge(found.label if found else argument)
    if verdict.verdict == REJECTED:
        instead = verdict.reason if verdict.reason.startswith(("use ", "show ")) else ""
        reason = "" if instead else f": {verdict.reason}"
        msg = f"option '{argument}' of clang is not supported{reason}"
        raise UsageError(msg, hint=instead or "leave it out")
    # An option with a separate value is recorded as one string.
    taken = replace(options, spelled=(*options.spelled, (" ".join(words), "")))
    if verdict.verdict == IGNORED:
        return replace(taken, unused=(*taken.unused, " ".join(words)))
    return _passed(taken, words, verdict.to)


def _words(found: ClangOption | None, argument: str, rest: list[str]) -> list[str]:
    """Return a clang option with its value, which may be the next word."""
    if found is None:
        return [argument]
    is_bare = argument == found.name.rstrip("=")
    if is_bare and (found.is_separate or found.name.endswith("=")):
        if not rest:
            msg = f"option '{argument}' needs a value"
            raise UsageError(msg, hint=f"write {found.label}")
        return [argument, rest.pop()]
    if found.is_separate and not is_bare:
        return [found.name, argument.removeprefix(found.name).lstrip(" ")]
    return [argument]


def _is_mistyped(argument: str) -> bool:
    """Return whether an option that clang does not list resembles an option of this driver."""
    own = {name.rstrip("=,") for row in COMPILER.rows for name in row.names}
    word = argument.partition("=")[0]
    return len(word) > len("-Wall") and bool(nearest(word, own, _LIKE))


def _passed(options: CompileOptions, words: Sequence[str], to: Sequence[str]) -> CompileOptions:
    changes: dict[str, tuple[str, ...]] = {}
    if "link" in to:
        changes["link_items"] = (*options.link_items, *words)
    if "code" in to:
        changes["code_arguments"] = (*options.code_arguments, *words)
    if "c" in to or "code" in to:
        changes["compiler_arguments"] = (*options.compiler_arguments, *words)
    return replace(options, **changes)
