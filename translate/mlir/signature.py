"""What follows the operands of an operation in the generic form: successors, attributes, types, location."""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.translate.mlir.attribute import Attribute, parse_dictionary, render_dictionary
from mlir_offload.translate.mlir.syntax import MLIR

# Unregistered operations may have a dictionary of no properties, which is printed.
_NO_PROPERTIES = {"": Attribute("")}


class Signature(Struct, gc=False):
    """What follows the operands of an operation, besides its regions."""

    successors: list[str] = []
    properties: dict[str, Attribute] = {}
    attributes: dict[str, Attribute] = {}
    operand_types: list[str] = []
    result_types: list[str] = []
    location: str = ""


def split_types(text: str) -> list[str]:
    """Return the types of `(a, b)`, or the one type that the text is."""
    return MLIR.split_list(MLIR.inside(text, 0) if text.startswith("(") else text)


def parse_signature(head: str, end: str | None) -> Signature:
    """Read what follows the operands: before the regions, and behind them if there are any."""
    found = Signature()
    text, place = head, 0
    if text.startswith("["):
        stop = MLIR.closing(text, 0)
        found.successors = MLIR.split_list(text[1:stop])
        place = stop + 1
    if text.startswith(" <{", place):
        stop = MLIR.closing(text, place + 1)
        found.properties = parse_dictionary(text[place + 3 : stop - 1]) or dict(_NO_PROPERTIES)
        place = stop + 1
    if end is not None:
        text, place = end, 0
    if text.startswith(" {", place):
        stop = MLIR.closing(text, place + 1)
        found.attributes = parse_dictionary(text[place + 2 : stop])
        place = stop + 1
    if text.startswith(" : (", place):
        stop = MLIR.closing(text, place + 3)
        found.operand_types = MLIR.split_list(text[place + 4 : stop])
        place = stop + len(" -> ") + 1
        results, place = _result_types(text, place)
        found.result_types = results
    found.location = text[place + 1 :]
    return found


def _result_types(text: str, start: int) -> tuple[list[str], int]:
    """Return the types behind the arrow, and where they end."""
    if text.startswith("(", start):
        stop = MLIR.closing(text, start)
        return MLIR.split_list(text[start + 1 : stop]), stop + 1
    stop = text.find(" loc(", start)
    stop = len(text) if stop < 0 else stop
    return [text[start:stop]], stop


def render_signature(signature: Signature, *, has_regions: bool) -> tuple[str, str]:
    """Return the text before the regions, and that behind them."""
    head = f"[{', '.join(signature.successors)}]" if signature.successors else ""
    if signature.properties:
        head += f" <{{{render_dictionary(signature.properties)}}}>"
    end = f" {{{render_dictionary(signature.attributes)}}}" if signature.attributes else ""
    given = signature.result_types
    single = len(given) == 1 and not given[0].startswith("(")
    results = given[0] if single else f"({', '.join(given)})"
    location = f" {signature.location}" if signature.location else ""
    end += f" : ({', '.join(signature.operand_types)}) -> {results}{location}"
    return (head, end) if has_regions else (head + end, "")
