"""Downgrade calls of intrinsics and debug records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.downgrade.table import DowngradeRow
from mlir_offload.translate.ir_tokens import (
    Token,
    TokenKind,
    group_end,
    group_start,
    operands,
    spell,
    tokenize,
    trim,
    type_end,
)

NewValue = Callable[[], str]
_INTRINSIC = "@llvm."
_VALUE_RECORDS = ("#dbg_value", "#dbg_assign")
_FRAGMENT = "DW_OP_LLVM_fragment"
_PLACE = ir_pattern("{`name:word`}")


class Replacement(Struct, frozen=True):
    """The lines that replace a line, and a declaration that they require."""

    lines: list[str]
    declaration: str = ""


def rewrite_call(tokens: list[Token], row: DowngradeRow, new_value: NewValue) -> Replacement | None:
    """Return the replacement of a call or declaration of the row's intrinsic, None for other lines."""
    place = next(
        (
            i
            for i, token in enumerate(tokens[:-1])
            if token.kind is TokenKind.NAME
            and token.text.startswith(_INTRINSIC)
            and tokens[i + 1].text == "("
            and row.names_callee(token.text[1:])
        ),
        None,
    )
    if place is None:
        return None
    given = operands(tokens, place + 1)
    if len(given) != row.operands:
        return None
    if tokens[0].is_word("declare"):
        return Replacement([])
    spelled = [spell(part) for part in given]
    if any(text != wanted for text, wanted in zip(spelled, row.when, strict=False)):
        return None
    words = _call_words(tokens, place, given, row)
    for name in ("a", "b"):
        if any(f"{{{name}}}" in line for line in row.lines):
            words[name] = new_value()
    indent = tokens[0].text if tokens[0].kind is TokenKind.SPACE else ""
    lines = [f"{indent}{_filled(line, words)}\n" for line in row.lines]
    return Replacement(lines, _filled(row.declare, words))


def declaration_of(tokens: list[Token]) -> str:
    """Return the declaration of the intrinsic that a line calls, an empty string if it calls none."""
    place = next(
        (
            i
            for i, token in enumerate(tokens[:-1])
            if token.text.startswith(_INTRINSIC) and tokens[i + 1].text == "("
        ),
        None,
    )
    if place is None or not any(token.is_word("call", "invoke") for token in tokens[:place]):
        return ""
    kinds = [spell(part[: type_end(part, 0)]) for part in operands(tokens, place + 1)]
    result = spell(_type_before(trim(tokens[:place])))
    return f"{result} {tokens[place].text}({', '.join(kinds)})"


def rewrite_record(tokens: list[Token], row: DowngradeRow, _: NewValue) -> Replacement | None:
    """Return the call that replaces a debug record of the row, None for other lines."""
    place = next((i for i, token in enumerate(tokens) if token.kind is not TokenKind.SPACE), 0)
    if tokens[place].text not in row.names:
        return None
    given = operands(tokens, place + 1)
    words = {str(number): spell(part) for number, part in enumerate(given)}
    indent = spell(tokens[:place])
    lines = [f"{indent}{_filled(line, words)}\n" for line in row.lines]
    return Replacement(lines, row.declare)


def strip_value(tokens: list[Token], unknown: Collection[str]) -> None:
    """Replace the value of a debug record by poison if its expression has an operation of `unknown`."""
    place = next((i for i, token in enumerate(tokens) if token.kind is not TokenKind.SPACE), 0)
    if tokens[place].text not in _VALUE_RECORDS:
        return
    value, variable, expression, *rest = operands(tokens, place + 1)
    if not any(token.is_word(*unknown) for token in expression):
        return
    fragment = next((i for i, token in enumerate(expression) if token.is_word(_FRAGMENT)), -1)
    kept = f"!DIExpression({spell(expression[fragment:-1])})"
    # For several values or none, the type does not matter.
    kind = "i32" if value[0].text.startswith("!") else spell(value[: type_end(value, 0)])
    parts = (f"{kind} poison", spell(variable), kept, *map(spell, rest))
    tokens[place + 1 : group_end(tokens, place + 1)] = tokenize(f"({', '.join(parts)})")


def _filled(line: str, words: Mapping[str, str]) -> str:
    """Replace the placeholders of a line of the table. The values may contain braces."""
    return _PLACE.sub(lambda match: words[match[1]], line)


def _call_words(
    tokens: list[Token], place: int, given: list[list[Token]], row: DowngradeRow
) -> dict[str, str]:
    callee = tokens[place].text[1:]
    head = trim(tokens[:place])
    equals = next((i for i, token in enumerate(head) if token.text == "="), None)
    rest = trim(tokens[group_end(tokens, place + 1) :])
    words = {
        "callee": callee,
        "to": row.names_to.get(callee, ""),
        "head": spell(head) + " ",
        "result": f"{spell(head[: equals + 1])} " if equals is not None else "",
        "type": spell(_type_before(head)),
        "rest": _joined(rest),
        "debug": _debug(rest),
    }
    for number, part in enumerate(given):
        end = type_end(part, 0)
        value = trim(part[end:])
        words[str(number)] = spell(part)
        words[f"t{number}"] = spell(part[:end])
        words[f"v{number}"] = value[-1].text if value else ""
        words[f"align{number}"] = _alignment(part)
        words[f"p{number}"] = spell(_without_alignment(part))
    return words


def _joined(rest: list[Token]) -> str:
    text = spell(rest)
    return text if not text or text.startswith(",") else f" {text}"


def _debug(rest: list[Token]) -> str:
    place = next((i for i, token in enumerate(rest) if token.text == "!dbg"), None)
    return f", !dbg {trim(rest[place + 1 :])[0].text}" if place is not None else ""


def _type_before(head: list[Token]) -> list[Token]:
    """Return the type at the end of a head."""
    if head[-1].text in {")", ">", "}", "]"}:
        start = group_start(head, len(head))
        if head[-1].text == ")":
            # `ptr addrspace(1)`
            start = max(0, start - 3)
        return head[start:]
    return head[-1:]


def _alignment(part: list[Token]) -> str:
    """Return the alignment in the attributes of an operand, 1 if there is none."""
    place = next((i for i, token in enumerate(part) if token.is_word("align")), None)
    return trim(part[place + 1 :])[0].text if place is not None else "1"


def _without_alignment(part: list[Token]) -> list[Token]:
    place = next((i for i, token in enumerate(part) if token.is_word("align")), None)
    return part if place is None else [*part[:place], *part[place + 4 :]]
