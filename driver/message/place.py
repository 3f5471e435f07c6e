"""A place in a file, as messages name it."""

from __future__ import annotations

import re

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern

_PLACE = pattern(r"(?P<file>.+?)(?::(?P<line>\d+))?(?::(?P<column>\d+))?", re.DOTALL)


class Place(Struct, frozen=True):
    """A place in a file, counted from 1; 0 where a number is not known. Columns are bytes.

    `end_column` is that after the last byte of the range.
    """

    file: str
    line: int = 0
    column: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        """Return the place as compilers print it."""
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}" if self.line else self.file


def parse_place(location: str) -> Place | None:
    """Return the place that an error names as `file`, `file:line` or `file:line:column`."""
    match = _PLACE.fullmatch(location)
    if match is None:
        return None
    return Place(match["file"], int(match["line"] or 0), int(match["column"] or 0))
