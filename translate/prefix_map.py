"""Remap file names in the locations of a program (`-ffile-prefix-map`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.translate.mlir.module import map_files


class PrefixMap(Struct, frozen=True):
    """Replaces `old` by `new` at the beginning of file names."""

    old: str
    new: str

    def __str__(self) -> str:
        """Return the value of the option."""
        return f"{self.old}={self.new}"


def parse_prefix_map(text: str, option: str) -> PrefixMap:
    """Parse `OLD=NEW`. Raises UsageError if there is no `=`."""
    old, separator, new = text.partition("=")
    if not separator:
        msg = f"{option}={text}: not of the form OLD=NEW"
        raise UsageError(msg, hint=f"for example {option}=$PWD=. (an empty NEW takes OLD away)")
    return PrefixMap(old, new)


def map_path(path: str, maps: Sequence[PrefixMap]) -> str:
    """Remap a path. If several maps match, the last one applies, as in clang."""
    for prefix in reversed(maps):
        if path.startswith(prefix.old):
            return prefix.new + path[len(prefix.old) :]
    return path


def map_locations(text: str, maps: Sequence[PrefixMap]) -> str:
    """Remap all file names in the locations of a module in generic form."""
    return map_files(text, lambda name: map_path(name, maps)) if maps else text


def unmap_location(location: str, sources: Sequence[str], maps: Sequence[PrefixMap]) -> str:
    """Restore the original name of a source in a remapped `file:line:column`."""
    for source in sources:
        mapped = map_path(source, maps)
        if location == mapped or location.startswith(f"{mapped}:"):
            return source + location[len(mapped) :]
    return location
