"""Downgrade flags, properties and constants."""

from __future__ import annotations

from collections.abc import Collection

from mlir_offload.translate.downgrade.table import DowngradeRow
from mlir_offload.translate.ir_tokens import (
    Token,
    TokenKind,
    group_end,
    group_start,
    remove,
    spell,
    trim,
)

# Words that may occur between an opcode and the flags of a row.
_OTHER_FLAGS = frozenset(
    (
        *("inbounds", "nuw", "nusw", "nsw", "exact", "nneg", "disjoint", "samesign", "inrange"),
        *("fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"),
    )
)


def strip_flags(tokens: list[Token], row: DowngradeRow) -> None:
    """Remove the flags of a row after each of its opcodes."""
    for place in reversed(range(len(tokens))):
        if not tokens[place].is_word(*row.opcodes):
            continue
        current = place + 1
        while current < len(tokens):
            token = tokens[current]
            if token.kind is TokenKind.SPACE:
                current += 1
            elif token.is_word(*row.names):
                has_argument = current + 1 < len(tokens) and tokens[current + 1].text == "("
                is_constant = token.text != "inrange"
                end = current + 1
                if has_argument and not is_constant:
                    end = group_end(tokens, end)
                remove(tokens, current, end)
            elif token.is_word() and token.text in _OTHER_FLAGS:
                current += 1
            else:
                break


def strip_property(tokens: list[Token], names: Collection[str]) -> None:
    """Remove properties, each up to the next comma or closing bracket, and one comma."""
    for place in reversed(range(len(tokens))):
        if place >= len(tokens) or tokens[place].text not in names:
            continue
        if tokens[place].kind in {TokenKind.STRING, TokenKind.NAME}:
            continue
        end = place + 1
        while end < len(tokens) and tokens[end].text not in {",", ")"} and tokens[end].text != "\n":
            end = group_end(tokens, end) if tokens[end].text in "([{<" else end + 1
        before = place
        while before and tokens[before - 1].kind is TokenKind.SPACE:
            before -= 1
        if before and tokens[before - 1].text == ",":
            del tokens[before - 1 : end]
        else:
            remove(
                tokens, place, end + 1 if tokens[end : end + 1] and tokens[end].text == "," else end
            )


def strip_attachment(tokens: list[Token], place: int) -> None:
    """Remove the metadata at a position from an instruction, with the comma before it."""
    before = next(i for i in range(place, -1, -1) if i == 0 or tokens[i].text == ",")
    node = next(
        (i for i in range(place + 1, len(tokens)) if tokens[i].kind is TokenKind.NAME), place
    )
    del tokens[before : node + 1]


def write_out_splat(tokens: list[Token]) -> None:
    """Expand each `splat (TYPE VALUE)` to a vector."""
    place = 0
    while place < len(tokens):
        if tokens[place].is_word("splat") and any(
            token.text == "(" for token in trim(tokens[place + 1 :])[:1]
        ):
            start = next(i for i in range(place, len(tokens)) if tokens[i].text == "(")
            end = group_end(tokens, start)
            element = spell(trim(tokens[start + 1 : end - 1]))
            vector = _vector_before(tokens, place)
            text = _written_out(vector, element)
            tokens[place:end] = [Token(TokenKind.MARK, text)]
        place += 1


def _vector_before(tokens: list[Token], place: int) -> list[Token]:
    """Return the last vector type before a position, which may be that of the previous operand."""
    for end in range(place, 0, -1):
        if tokens[end - 1].text == ">":
            start = group_start(tokens, end)
            inside = trim(tokens[start + 1 : end - 1])
            if any(token.is_word("x") for token in inside):
                return inside
    return []


def _written_out(vector: list[Token], element: str) -> str:
    words = [token.text for token in vector if token.kind is TokenKind.WORD]
    if words[:1] == ["vscale"]:
        kind = f"<{spell(vector)}>"
        head = f"insertelement ({kind} poison, {element}, i64 0)"
        mask = f"<{' '.join(words[:4])} i32>"
        return f"shufflevector ({kind} {head}, {kind} poison, {mask} zeroinitializer)"
    return f"<{', '.join([element] * int(words[0]))}>"
