"""Names and texts of files as messages show them: they control no terminal and no CI system.

A CI system reads commands from what a step prints: GitHub at the beginning of a line (`::error::`), it
and others anywhere in one (`##[error]`, `##vso[...]`, `##teamcity[...]`).
"""

from __future__ import annotations

import re

from mlir_offload.toolchain.pattern import pattern

_COMMAND = pattern(r"^(?P<indent>\s*):(?=:)|#(?=#(?:\[|vso\[|teamcity\[))")
# Select Graphic Rendition, and "erase to the end of the line", which GCC and clang print with it.
_COLORS = pattern("(\033\\[[0-9;]*[mK])")
_ANY_NUMBER_SIGN = "##"
# Bytes of a name that are not UTF-8, as Python has them.
_BYTES = frozenset(map(chr, range(0xDC80, 0xDD00)))


def shown(text: str) -> str:
    """Return a text as one line: what does not print, and what begins a CI command, as an escape."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escaped(char) for char in text)
    return _COMMAND.sub(_harmless, text) if "::" in text or _ANY_NUMBER_SIGN in text else text


def shown_lines(text: str) -> str:
    """Return a text of several lines, each as `shown` returns it, with its tabs."""
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in text.split("\n"))


def shown_colors(text: str) -> str:
    """Return what a compiler printed, each line as `shown_lines` returns it, with its colours."""
    pieces = _COLORS.split(text)
    return "".join(
        piece if number % 2 else shown_lines(piece) for number, piece in enumerate(pieces)
    )


def without_colors(text: str) -> str:
    """Return what a compiler printed without its colours."""
    return _COLORS.sub("", text)


def shown_message(text: str) -> str:
    """Return the text of a message: a newline is kept if the next line is indented, as in a list."""
    return "\n".join(map(shown, re.split(r"\n(?=  )", text)))


def harmless_json(text: str) -> str:
    """Return JSON that begins no CI command."""
    return text.replace(_ANY_NUMBER_SIGN, "#\\u0023")


def _harmless(match: re.Match[str]) -> str:
    indent = match["indent"]
    return "\\x23" if indent is None else f"{indent}\\x3a"


def _escaped(char: str) -> str:
    if char in _BYTES:
        return f"\\x{ord(char) & 0xFF:02x}"
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
