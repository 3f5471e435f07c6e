"""File names that a program carries in its locations, written anew so that no place is told."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.translate.mlir_text import escape, unescape

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
# What names a file in MLIR: a location, and the file of debug information that is there already.
_LOCATION = re.compile(rf"(?<=[(\[ ]){_QUOTED}(?=:\d)")
_DEBUG_FILE = re.compile(rf"(?<=#llvm\.di_file<){_QUOTED} in {_QUOTED}(?=>)")


class PrefixMap(Struct, frozen=True):
    """`new` stands for `old` at the beginning of a file name."""

    old: str
    new: str

    def __str__(self) -> str:
        """Return the map as options spell it."""
        return f"{self.old}={self.new}"


def parse_prefix_map(text: str, option: str) -> PrefixMap:
    """Read `OLD=NEW`. Raises UsageError where there is no `=`."""
    old, separator, new = text.partition("=")
    if not separator:
        msg = f"{option}={text}: not of the form OLD=NEW"
        raise UsageError(msg, hint=f"for example {option}=$PWD=. (an empty NEW takes OLD away)")
    return PrefixMap(old, new)


def map_path(path: str, maps: Sequence[PrefixMap]) -> str:
    """Return the path with the prefix replaced that the last fitting map names, as clang does."""
    for prefix in reversed(maps):
        if path.startswith(prefix.old):
            return prefix.new + path[len(prefix.old) :]
    return path


def map_locations(text: str, maps: Sequence[PrefixMap]) -> str:
    """Return the text of a module, in generic form, with every file name mapped."""
    if not maps:
        return text

    def mapped(printed: str) -> str:
        name = unescape(printed)
        # A name that is no UTF-8 would not come back the same.
        return escape(new) if (new := map_path(name, maps)) != name else printed

    def located(match: re.Match[str]) -> str:
        return f'"{mapped(match[1])}"'

    def debug_file(match: re.Match[str]) -> str:
        return f'"{mapped(match[1])}" in "{mapped(match[2])}"'

    return _DEBUG_FILE.sub(debug_file, _LOCATION.sub(located, text))


def unmap_location(location: str, sources: Sequence[str], maps: Sequence[PrefixMap]) -> str:
    """Return `file:line:column` with the name by which the user knows one of the sources."""
    for source in sources:
        mapped = map_path(source, maps)
        if location == mapped or location.startswith(f"{mapped}:"):
            return source + location[len(mapped) :]
    return location
