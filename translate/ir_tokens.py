"""Tokens of textual LLVM IR, which keep strings, comments and quoted names apart from code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto

from msgspec import Struct

_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class TokenKind(Enum):
    """The kind of a token. A label, and the name of a metadata field, includes its colon."""

    COMMENT = auto()
    STRING = auto()
    NAME = auto()
    SPACE = auto()
    LABEL = auto()
    WORD = auto()
    MARK = auto()


class Token(Struct, frozen=True):
    """A piece of a line. The texts of all tokens add up to the line."""

    kind: TokenKind
    text: str

    def is_word(self, *texts: str) -> bool:
        """Return whether the token is a word, and if `texts` are given, one of them."""
        return self.kind is TokenKind.WORD and (not texts or self.text in texts)


_TOKEN = re.compile(
    r"""(?P<COMMENT>;.*)
    |(?P<STRING>c?"[^"]*")
    |(?P<NAME>[@%$#!^](?:"[^"]*"|[-\w$.]+))
    |(?P<SPACE>\s+)
    |(?P<LABEL>[-\w$.]+:)
    |(?P<WORD>[-\w$.]+)
    |(?P<MARK>.)""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(line: str) -> list[Token]:
    """Return the tokens of one or more lines. Any text can be tokenized without loss."""
    return [
        Token(TokenKind[match.lastgroup or "MARK"], match.group())
        for match in _TOKEN.finditer(line)
    ]


def spell(tokens: Sequence[Token]) -> str:
    """Return the text of tokens."""
    return "".join(token.text for token in tokens)


def group_end(tokens: Sequence[Token], start: int) -> int:
    """Return the index after the bracket that closes the one at `start`, the end if there is none."""
    closers: list[str] = []
    for place in range(start, len(tokens)):
        text = tokens[place].text
        if text in _CLOSING:
            closers.append(_CLOSING[text])
        elif closers and text == closers[-1]:
            closers.pop()
            if not closers:
                return place + 1
    return len(tokens)


def group_start(tokens: Sequence[Token], end: int) -> int:
    """Return the index of the opening bracket for the one at `end - 1`, `end - 1` if that is not a bracket."""
    closed = {after: before for before, after in _CLOSING.items()}
    openers: list[str] = []
    for place in range(end - 1, -1, -1):
        text = tokens[place].text
        if text in closed:
            openers.append(closed[text])
        elif openers and text == openers[-1]:
            openers.pop()
        if not openers:
            return place
    return end - 1


def operands(tokens: Sequence[Token], start: int) -> list[list[Token]]:
    """Split the bracket group at `start` at its commas, without surrounding spaces."""
    end = group_end(tokens, start) - 1
    parts: list[list[Token]] = [[]]
    place = start + 1
    while place < end:
        if tokens[place].text == ",":
            parts.append([])
            place += 1
            continue
        after = group_end(tokens, place) if tokens[place].text in _CLOSING else place + 1
        parts[-1].extend(tokens[place:after])
        place = after
    stripped = [trim(part) for part in parts]
    return stripped if any(stripped) else []


def trim(tokens: Sequence[Token]) -> list[Token]:
    """Remove leading and trailing spaces and comments."""
    idle = {TokenKind.SPACE, TokenKind.COMMENT}
    kept = list(tokens)
    while kept and kept[-1].kind in idle:
        kept.pop()
    while kept and kept[0].kind in idle:
        del kept[0]
    return kept


def type_end(tokens: Sequence[Token], start: int) -> int:
    """Return the index after the type at `start`: `ptr addrspace(1)`, `<4 x i32>`."""
    if tokens[start].text in _CLOSING:
        return group_end(tokens, start)
    end = start + 1
    if tokens[start].is_word("target") and end < len(tokens) and tokens[end].text == "(":
        return group_end(tokens, end)
    space = next(
        (place for place in range(end, len(tokens)) if tokens[place].kind is not TokenKind.SPACE),
        len(tokens),
    )
    if space < len(tokens) and tokens[space].is_word("addrspace"):
        return group_end(tokens, space + 1)
    return end


def remove(tokens: list[Token], start: int, end: int) -> None:
    """Remove tokens together with one adjacent space."""
    if end < len(tokens) and tokens[end].kind is TokenKind.SPACE and "\n" not in tokens[end].text:
        end += 1
    elif start and tokens[start - 1].kind is TokenKind.SPACE:
        start -= 1
    del tokens[start:end]
