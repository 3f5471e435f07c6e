"""Brackets, lists and strings of a textual language, so that text in strings is never taken for code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mlir_offload.toolchain.pattern import pattern

_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSERS = frozenset(_CLOSING.values())
# No pattern for code matches it.
_FILLER = "\0"


class Syntax:
    """A language: how it writes what is opaque (strings, quoted names, comments), and its operators."""

    def __init__(self, opaque: str, operators: str = "") -> None:
        """Take the patterns of opaque text, and of operators that contain a bracket."""
        joined = f"|{operators}" if operators else ""
        self._opaque = pattern(opaque)
        self._mark = pattern(rf"{opaque}{joined}|[()\[\]{{}}<>,]")

    def closing(self, text: str, start: int) -> int:
        """Return where the bracket at `start` is closed. Raises ValueError if it is not."""
        depth = 0
        for place, mark in self._marks(text, start):
            depth += (mark in _CLOSING) - (mark in _CLOSERS)
            if depth == 0:
                return place
        msg = f"unbalanced brackets: {text}"
        raise ValueError(msg)

    def enclosing(self, text: str, position: int) -> list[int]:
        """Return the brackets that are open at a position, the innermost last."""
        opened: list[int] = []
        for place, mark in self._marks(text, 0):
            if place >= position:
                break
            if mark in _CLOSING:
                opened.append(place)
            elif mark in _CLOSERS and opened:
                opened.pop()
        return opened

    def unclosed(self, text: str, position: int) -> int | None:
        """Return the brace that most likely lacks its closing one; None if none is open.

        That is the first one whose closing brace has the indentation of a block around it, else the
        innermost that is open at the position.
        """
        opened: list[int] = []
        for place, mark in self._marks(text, 0):
            if mark == "{":
                opened.append(place)
            elif mark == "}" and opened:
                last, indentation = opened.pop(), _indentation(text, place)
                around = {_indentation(text, outer) for outer in opened}
                if indentation in around - {_indentation(text, last)}:
                    return last
        braces = [place for place in self.enclosing(text, position) if text[place] == "{"]
        return braces[-1] if braces else None

    def inside(self, text: str, start: int) -> str:
        """Return the text between the bracket at `start` and the one that closes it."""
        return text[start + 1 : self.closing(text, start)]

    def split_list(self, text: str) -> list[str]:
        """Split at the commas outside of brackets; an empty text is an empty list."""
        parts: list[str] = []
        depth = start = 0
        for place, mark in self._marks(text, 0):
            if mark == "," and depth == 0:
                parts.append(text[start:place].strip())
                start = place + 1
            else:
                depth += (mark in _CLOSING) - (mark in _CLOSERS)
        last = text[start:].strip()
        return [*parts, last] if last else parts

    def blanked(self, text: str) -> str:
        """Return the text, equally long, with nothing in its strings and comments."""
        return self._opaque.sub(_blank, text)

    def without(self, text: str, start: str) -> str:
        """Return the text without its opaque pieces that begin so, such as comments."""
        return self._opaque.sub(lambda piece: "" if piece[0].startswith(start) else piece[0], text)

    def replace(
        self, pattern: re.Pattern[str], made: Callable[[re.Match[str]], str], text: str
    ) -> str:
        """Replace what a pattern finds in code; its groups hold nothing opaque."""
        if pattern.search(text) is None:
            return text
        parts, done = [], 0
        for match in pattern.finditer(self.blanked(text)):
            parts += [text[done : match.start()], made(match)]
            done = match.end()
        return "".join((*parts, text[done:]))

    def search(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        """Return the first match in code, whose groups hold nothing opaque."""
        return pattern.search(self.blanked(text)) if pattern.search(text) else None

    def _marks(self, text: str, start: int) -> Iterator[tuple[int, str]]:
        return ((match.start(), match[0]) for match in self._mark.finditer(text, start))


def _indentation(text: str, position: int) -> int:
    """Return how many spaces the line of a position begins with."""
    start = text.rfind("\n", 0, position) + 1
    return len(text[start:position]) - len(text[start:position].lstrip())


def _blank(piece: re.Match[str]) -> str:
    text = piece[0]
    first, last = text.find('"'), len(text) - 1
    if first < 0 or first == last:
        return _FILLER * len(text)
    return f"{text[: first + 1]}{_FILLER * (last - first - 1)}{text[last]}"
