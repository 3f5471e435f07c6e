"""Abbreviations of a bitstream: in which bits a record keeps its operands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from mlir_offload.toolchain.bit_array import bits, vbr_at

_MAX_WIDTH = 32


class Encoding(IntEnum):
    """How an operand is stored; LITERAL takes no bits."""

    LITERAL = 0
    FIXED = 1
    VBR = 2
    ARRAY = 3
    CHAR6 = 4
    BLOB = 5


Field = tuple[Encoding, int]

_CODES = {encoding.value for encoding in Encoding} - {Encoding.LITERAL}


@dataclass(frozen=True, slots=True)
class Abbreviation:
    """The fields of a record: scalars, the first of which is its code, then perhaps an array.

    `element` is what the array is of (BLOB: bytes that begin and end at 32 bits). `free_count` is
    the number of operands that take no bits.
    """

    scalars: tuple[Field, ...]
    element: Field | None
    free_count: int


def read_abbreviation(data: bytes, position: int, end: int) -> tuple[Abbreviation, int]:
    """Return the abbreviation that is defined at a position in bits, and where it ends.

    Raises ValueError where no reader could use it.
    """
    count, position = vbr_at(data, position, 5)
    fields: list[Field] = []
    while len(fields) < count and position <= end:
        field, position = _field(data, position)
        fields.append(field)
    return _checked(fields), position


def _field(data: bytes, position: int) -> tuple[Field, int]:
    if bits(data, position, 1):
        value, position = vbr_at(data, position + 1, 8)
        return (Encoding.LITERAL, value), position
    code = bits(data, position + 1, 3)
    position += 4
    if code not in _CODES:
        msg = f"an abbreviation with encoding {code}"
        raise ValueError(msg)
    encoding = Encoding(code)
    if encoding not in {Encoding.FIXED, Encoding.VBR}:
        return (encoding, 6 if encoding is Encoding.CHAR6 else 8), position
    width, position = vbr_at(data, position, 5)
    if width > _MAX_WIDTH or (encoding is Encoding.VBR and width == 1):
        msg = f"an abbreviation with a field of {width} bits"
        raise ValueError(msg)
    return ((encoding, width) if width else (Encoding.LITERAL, 0)), position


def _checked(fields: list[Field]) -> Abbreviation:
    element = None
    if fields and fields[-1][0] is Encoding.BLOB:
        element = fields.pop()
    elif len(fields) > 1 and fields[-2][0] is Encoding.ARRAY:
        element = fields.pop()
        fields.pop()
    kinds = [encoding for encoding, _ in fields]
    if not fields or Encoding.ARRAY in kinds or Encoding.BLOB in kinds:
        msg = "an abbreviation without a code, or with an array that is not its end"
        raise ValueError(msg)
    if element and element[0] in {Encoding.LITERAL, Encoding.ARRAY}:
        msg = "an abbreviation with an array of nothing"
        raise ValueError(msg)
    # The code is a literal as a rule; the number of the abbreviation pays for that one.
    free_count = kinds.count(Encoding.LITERAL) - 1
    return Abbreviation(tuple(fields), element, max(0, free_count))
