"""Versions of tools, as they print them."""

from __future__ import annotations

from functools import total_ordering

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern

_NUMBER = pattern(r"(\d+)\.(\d+)(?:\.(\d+))?")


@total_ordering
class ToolVersion(Struct, frozen=True, eq=False):
    """A release number, and the text that it was read from, which takes no part in comparisons."""

    major: int
    minor: int
    patch: int = 0
    text: str = ""

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Return the parts of the number."""
        return self.major, self.minor, self.patch

    def __eq__(self, other: object) -> bool:
        """Compare the numbers."""
        return isinstance(other, ToolVersion) and self.numbers == other.numbers

    def __lt__(self, other: ToolVersion) -> bool:
        """Compare the numbers."""
        return self.numbers < other.numbers

    def __hash__(self) -> int:
        """Hash the number."""
        return hash(self.numbers)

    def __str__(self) -> str:
        """Return the dotted number."""
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> ToolVersion | None:
    """Return the first dotted number in `text`, or None where there is none."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    major, minor, patch = match.groups()
    return ToolVersion(int(major), int(minor), int(patch or 0), text.strip())
