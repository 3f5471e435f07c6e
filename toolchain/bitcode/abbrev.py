"""Bitstream abbreviations: the encodings of the operands of a record."""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.toolchain.bitcode.bit_array import VBR_BYTES, bits, vbr, vbr_at

_MAX_WIDTH = 32


class Encoding:
    """The encoding of an operand. LITERAL takes no bits."""

    LITERAL = 0
    FIXED = 1
    VBR = 2
    ARRAY = 3
    CHAR6 = 4
    BLOB = 5


# The encoding, and the width or the literal value.
Field = tuple[int, int]

_WITH_WIDTH = frozenset({Encoding.FIXED, Encoding.VBR})
_CHAR6_BITS = 6
_FIELD_BITS = 8 * VBR_BYTES


class Abbreviation(Struct, frozen=True):
    """The fields of a record: scalars, of which the first is the record code, and an optional array.

    `element` is the encoding of an array element (BLOB: bytes, aligned to 32 bits). `free_count` is
    the number of operands that take no bits. `problem` is the reason why no record can use the
    abbreviation. LLVM accepts such a definition, and Zig's writer emits some.

    If no VBR number is longer than one chunk, that is, no bit of `continued` is set, the scalars take `bits` bits, and
    each is a shifted and masked part of them or a literal. `steps` are shift, mask and literal; empty with CHAR6.
    """

    scalars: tuple[Field, ...]
    element: Field | None
    free_count: int
    problem: str = ""
    steps: tuple[tuple[int, int, int], ...] = ()
    bits: int = 0
    continued: int = 0


class _Known(Struct, frozen=True):
    """An abbreviation and the bits of its definition."""

    size: int
    mask: int
    bits: int
    abbreviation: Abbreviation


# A cache, because modules define the same abbreviations. Its keys are the first bits of definitions.
_known: dict[int, list[_Known]] = {}
_FIRST_BITS = (1 << 16) - 1
_LONGEST_KNOWN = 256
_MOST_KNOWN, _MOST_ALIKE = 256, 8


def read_abbreviation(data: bytes, position: int, end: int) -> tuple[Abbreviation, int]:
    """Return the abbreviation that is defined at a bit position, and the end of the definition.

    Raises ValueError for an encoding or a width that LLVM rejects.
    """
    word = bits(data, position, _LONGEST_KNOWN)
    for known in _known.get(word & _FIRST_BITS, ()):
        if word & known.mask == known.bits and position + known.size <= end:
            return known.abbreviation, position + known.size
    abbreviation, behind = _parse(data, position, end)
    size = behind - position
    if size <= _LONGEST_KNOWN and behind <= end:
        mask = (1 << size) - 1
        alike = _known.setdefault(word & _FIRST_BITS, [])
        if len(_known) > _MOST_KNOWN or len(alike) >= _MOST_ALIKE:
            _known.clear()
        alike.append(_Known(size, mask, word & mask, abbreviation))
    return abbreviation, behind


def _parse(data: bytes, position: int, end: int) -> tuple[Abbreviation, int]:
    count, position = vbr_at(data, position, 5)
    fields: list[Field] = []
    word = left = 0
    while len(fields) < count and position <= end:
        if left < _FIELD_BITS:
            left = 4 * _FIELD_BITS
            word = bits(data, position, left)
        field, used = _field(word)
        fields.append(field)
        word >>= used
        left -= used
        position += used
    return _checked(fields), position


def _field(word: int) -> tuple[Field, int]:
    """Return the field that the lowest bits define, and the number of these bits."""
    if word & 1:
        value, used = vbr(word >> 1, 8)
        return (Encoding.LITERAL, value), 1 + used
    encoding = word >> 1 & 7
    if not Encoding.FIXED <= encoding <= Encoding.BLOB:
        msg = f"an abbreviation with encoding {encoding}"
        raise ValueError(msg)
    if encoding not in _WITH_WIDTH:
        return (encoding, _CHAR6_BITS), 4
    width, used = vbr(word >> 4, 5)
    if width > _MAX_WIDTH or (encoding == Encoding.VBR and width == 1):
        msg = f"an abbreviation with a field of {width} bits"
        raise ValueError(msg)
    return ((encoding, width) if width else (Encoding.LITERAL, 0)), 4 + used


def _checked(fields: list[Field]) -> Abbreviation:
    element = None
    if fields and fields[-1][0] == Encoding.BLOB:
        element = fields.pop()
    elif len(fields) > 1 and fields[-2][0] == Encoding.ARRAY:
        element = fields.pop()
        fields.pop()
    kinds = [encoding for encoding, _ in fields]
    problem = ""
    if not fields or Encoding.ARRAY in kinds or Encoding.BLOB in kinds:
        problem = "an abbreviation without a code, or with an array that is not its end"
    elif element and element[0] in {Encoding.LITERAL, Encoding.ARRAY}:
        problem = "an abbreviation with an array of nothing"
    if problem:
        return Abbreviation((), None, 0, problem)
    # One literal, usually the code, is not counted: the abbreviation ID of each record takes bits.
    free_count = kinds.count(Encoding.LITERAL) - 1
    steps = () if Encoding.CHAR6 in kinds else _steps(fields)
    return Abbreviation(tuple(fields), element, max(0, free_count), "", *steps)


def _steps(fields: list[Field]) -> tuple[tuple[tuple[int, int, int], ...], int, int]:
    """Return the fields `steps`, `bits` and `continued` of an abbreviation."""
    steps, shift, continued = [], 0, 0
    for encoding, width in fields:
        if encoding == Encoding.LITERAL:
            steps.append((0, 0, width))
            continue
        is_vbr = encoding == Encoding.VBR
        steps.append((shift, (1 << width - is_vbr) - 1, 0))
        shift += width
        continued |= is_vbr << shift - 1
    return tuple(steps), shift, continued
