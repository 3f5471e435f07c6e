"""The source line of a diagnostic with a caret below it, as clang prints it."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.toolchain.errors import SourceLocation

# A name, a number, a string or an operation, in MLIR and in YAML.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[@%^#!]?[\w$.-]+(?:::@[\w$.-]+)*')
_LARGEST_BYTES = 1 << 24
_WIDEST = 160
_BEFORE = 60
_ELLIPSIS = "..."


def with_range(place: SourceLocation, content: bytes | None = None) -> SourceLocation:
    """Return the location with the end of the word that begins there, from `content` or the file."""
    line = (
        _source_line(place, content)
        if place.line and place.column and not place.end_column
        else None
    )
    if line is None:
        return place
    text = line[place.column - 1 :].decode("utf-8", "replace")
    word = _WORD.match(text)
    length = len(word[0].encode()) if word else 1
    return replace(place, end_column=place.column + length)


def excerpt(place: SourceLocation, fix: str = "", content: bytes | None = None) -> tuple[str, ...]:
    """Return the source line of a location, its caret and range, and the fix-it text."""
    line = _source_line(place, content) if place.line else None
    if line is None or not line.strip():
        return ()
    gutter = " " * max(5, len(str(place.line)))
    start = max(place.column - 1, 0)
    before, word = _plain(line[:start]), _plain(line[start : max(place.end_column - 1, 0)])
    text, cut = _trimmed(before + _plain(line[start:]), len(before))
    shown = [f"{place.line:>{len(gutter)}} | {text}"]
    if place.column:
        indent = f"{gutter} | {' ' * (len(before) - cut)}"
        shown.append(f"{indent}^{'~' * (len(word) - 1)}")
        shown += [f"{indent}{fix}"] if fix else []
    return tuple(shown)


def _trimmed(text: str, column: int) -> tuple[str, int]:
    """Return a line of limited width, and how far the column moved to the left."""
    text = text.rstrip()
    if len(text) <= _WIDEST:
        return text, 0
    first = max(0, column - _BEFORE)
    middle = text[first : first + _WIDEST]
    head, tail = _ELLIPSIS if first else "", _ELLIPSIS if first + _WIDEST < len(text) else ""
    return f"{head}{middle}{tail}", first - len(head)


def _plain(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape").replace("\t", " ").rstrip("\r\n")


def _source_line(place: SourceLocation, content: bytes | None) -> bytes | None:
    """Return the line; None if it does not exist or the file is binary."""
    if content is None:
        content = _content(Path(place.file))
    lines = content.split(b"\n")
    if b"\0" in content or place.line > len(lines):
        return None
    return lines[place.line - 1]


def _content(path: Path) -> bytes:
    try:
        is_small = path.is_file() and path.stat().st_size <= _LARGEST_BYTES
        return path.read_bytes() if is_small else b""
    except (OSError, ValueError):
        return b""
