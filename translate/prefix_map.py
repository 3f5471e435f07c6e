"""File names that a program carries in its locations, written anew so that no place is told."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.translate.mlir.module import map_files


class PrefixMap(Struct, frozen=True):
    """`new` represents `old` at the beginning of a file name."""

    old: str
    new: str

    def __str__(self) -> str:
        """Return the map as options spell it."""
        return f"{self.old}={self.new}"


def parse_prefix_map(text: str, option: str) -> PrefixMap:
    """Read `OLD=NEW`. Raises UsageError if there is no `=`."""
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
    return map_files(text, lambda name: map_path(name, maps)) if maps else text


def unmap_location(location: str, sources: Sequence[str], maps: Sequence[PrefixMap]) -> str:
    """Return `file:line:column` with the name by which the user knows one of the sources."""
    for source in sources:
        mapped = map_path(source, maps)
        if location == mapped or location.startswith(f"{mapped}:"):
            return source + location[len(mapped) :]
    return location
