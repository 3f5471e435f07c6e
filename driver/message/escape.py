"""Escape text from files for messages, so that it controls neither a terminal nor a CI system.

CI systems read commands from the output of a step: GitHub at the beginning of a line (`::error::`), GitHub
and others anywhere in a line (`##[error]`, `##vso[...]`, `##teamcity[...]`).
"""

from __future__ import annotations

import re

from mlir_offload.toolchain.pattern import pattern

_COMMAND = pattern(r"^(?P<indent>\s*):(?=:)|#(?=#(?:\[|vso\[|teamcity\[))")
# Select Graphic Rendition, and "erase to the end of the line", which GCC and clang print with it.
_COLORS = pattern("(\033\\[[0-9;]*[mK])")
_ANY_NUMBER_SIGN = "##"
# Bytes of a name that are not UTF-8, in Python's surrogateescape representation.
_BYTES = frozenset(map(chr, range(0xDC80, 0xDD00)))


def shown(text: str) -> str:
    """Return text as one line, with unprintable characters and the start of CI commands escaped."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escaped(char) for char in text)
    return _COMMAND.sub(_harmless, text) if "::" in text or _ANY_NUMBER_SIGN in text else text


def shown_lines(text: str) -> str:
    """Return text of several lines, each escaped by `shown`, with tabs kept."""
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in text.split("\n"))


def shown_colors(text: str) -> str:
    """Return the output of a compiler, escaped by `shown_lines`, with its colors kept."""
    pieces = _COLORS.split(text)
    return "".join(
        piece if number % 2 else shown_lines(piece) for number, piece in enumerate(pieces)
    )


def without_colors(text: str) -> str:
    """Return the output of a compiler without its colors."""
    return _COLORS.sub("", text)


def shown_message(text: str) -> str:
    """Return the text of a message, escaped; newlines before indented lines, as in a list, are kept."""
    return "\n".join(map(shown, re.split(r"\n(?=  )", text)))


def harmless_json(text: str) -> str:
    """Return JSON that contains no CI command."""
    return text.replace(_ANY_NUMBER_SIGN, "#\\u0023")


def _harmless(match: re.Match[str]) -> str:
    indent = match["indent"]
    return "\\x23" if indent is None else f"{indent}\\x3a"


def _escaped(char: str) -> str:
    if char in _BYTES:
        return f"\\x{ord(char) & 0xFF:02x}"
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
