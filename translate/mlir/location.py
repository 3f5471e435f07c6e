"""Source locations: what `loc(...)` of an operation means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import escape, unescape

_FILE = pattern(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAMED = pattern(r'"((?:[^"\\]|\\.)*)"\(')
_ALIAS = pattern(r"#\w+")
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
# What names a file in MLIR: a location, and the file of debug information that is there already.
_LOCATION = pattern(rf"(?<=[(\[ ]){_QUOTED}(?=:\d)")
_DEBUG_FILE = pattern(rf"(?<=#llvm\.di_file<){_QUOTED} in {_QUOTED}(?=>)")
_DEPTH_LIMIT = 20


class Locations(Struct, frozen=True):
    """The locations behind the `#loc` aliases of a text; `aliases` has the texts by their names."""

    aliases: Mapping[str, str] = {}

    def of(self, operation: Operation) -> str:
        """Return `file:line:column` of an operation, or an empty string."""
        return self.resolve(operation.location)

    def resolve(self, location: str, depth: int = 0) -> str:
        """Return `file:line:column` of a location, or an empty string."""
        direct = _FILE.search(location)
        if direct:
            return f"{unescape(direct[1])}:{direct[2]}:{direct[3]}"
        if depth > _DEPTH_LIMIT:
            return ""
        found = (
            self.resolve(self.aliases.get(name, ""), depth + 1) for name in _ALIAS.findall(location)
        )
        return next((place for place in found if place), "")

    def function_of(self, location: str) -> str:
        """Return the name that a location has, that of a function; empty without one.

        Of a call that was inlined the callee counts, as where MLIR itself names a function.
        """
        for _ in range(_DEPTH_LIMIT):
            location = location.removeprefix("loc(").removeprefix("callsite(")
            if named := _NAMED.match(location):
                return unescape(named[1])
            if not (alias := _ALIAS.match(location)):
                break
            location = self.aliases.get(alias[0], "")
        return ""


def location_of_line(text: str, number: int) -> str:
    """Return `file:line:column` of the operation that begins in a line of a printed module, or nothing."""
    lines = text.splitlines()
    if not 0 < number <= len(lines):
        return ""
    definitions = (line.partition(" = ") for line in lines if line.startswith("#loc"))
    aliases = {name: value for name, _, value in definitions}
    return Locations(aliases).resolve(lines[number - 1].rpartition("loc(")[2])


def map_files(text: str, made: Callable[[str], str]) -> str:
    """Return the text of a module, in generic form, with other names of source files."""

    def mapped(printed: str) -> str:
        name = unescape(printed)
        # A name that is not UTF-8 would not come back the same.
        return escape(new) if (new := made(name)) != name else printed

    def located(match: re.Match[str]) -> str:
        return f'"{mapped(match[1])}"'

    def debug_file(match: re.Match[str]) -> str:
        return f'"{mapped(match[1])}" in "{mapped(match[2])}"'

    return _DEBUG_FILE.sub(debug_file, _LOCATION.sub(located, text))
