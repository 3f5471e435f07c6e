"""Versions of tools, as they print them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NUMBER = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class ToolVersion:
    """A release number with the text that it was read from."""

    major: int
    minor: int
    patch: int = 0
    text: str = field(default="", compare=False)

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
