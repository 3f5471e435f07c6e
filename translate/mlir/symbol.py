"""Find symbols and functions in the text of a program, which may be invalid."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.translate.mlir.syntax import MLIR, parse_symbol, tokens

_FUNCTION = pattern(r"^[ \t]*(?:func|gpu|llvm)\.func\b", re.MULTILINE)
_DEFINITION = pattern(r"\.(?:func|global)\b[^\n@]*$")


def find_symbol(text: str, name: str, *, is_definition: bool) -> tuple[int, int] | None:
    """Return line and column of a symbol's definition or first use, None if there is neither.

    If the symbol has no such occurrence, return its first one.
    """
    code = MLIR.blanked(text)
    found = [match.start() for match in re.finditer(rf"@{re.escape(name)}(?![\w$.-])", code)]
    wanted = [place for place in found if _defines(code, place) is is_definition]
    place = next(iter((*wanted, *found)), None)
    if place is None:
        return None
    return code.count("\n", 0, place) + 1, place - code.rfind("\n", 0, place)


def place_of_symbol(message: str, file: str) -> str:
    """Return the location of the symbol in a message, only the file if it is not found.

    A message about a use contains `@f`, a message about a definition `kernel 'k' is defined`.
    """
    name = re.search(
        r"@(?P<use>[\w$.-]+)|kernel '(?P<kernel>[^']+)' is (?P<launched>launched)?", message
    )
    if name is None or not Path(file).is_file():
        return file
    text = Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    is_definition = bool(name["kernel"] and not name["launched"])
    is_text = "\0" not in text
    place = is_text and find_symbol(
        text, name["use"] or name["kernel"], is_definition=is_definition
    )
    return f"{file}:{place[0]}:{place[1]}" if place else file


def _defines(code: str, place: int) -> bool:
    return _DEFINITION.search(code[code.rfind("\n", 0, place) + 1 : place]) is not None


class FunctionText(Struct, frozen=True):
    """A function in a text: its name, start and end."""

    name: str
    start: int
    end: int

    def removed_from(self, text: str) -> str:
        """Return the text with the function replaced by spaces, so that positions do not change."""
        lines = text[self.start : self.end].split("\n")
        blank = "\n".join(" " * len(line) for line in lines)
        return text[: self.start] + blank + text[self.end :]


def find_function(text: str, line: int, column: int) -> FunctionText | None:
    """Return the function that contains a position; None if there is none or braces are unbalanced."""
    position = sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column - 1
    code = MLIR.blanked(text)
    heads = [match for match in _FUNCTION.finditer(code) if match.start() <= position]
    brace = code.find("{", heads[-1].end()) if heads else -1
    at = code.find("@", heads[-1].end()) if heads else -1
    if brace < 0 or at < 0:
        return None
    try:
        end = MLIR.closing(text, brace) + 1
    except ValueError:
        return None
    name = parse_symbol(tokens(code[at : code.find("\n", at)])[0])
    return FunctionText(name, heads[-1].start(), end) if position < end else None
