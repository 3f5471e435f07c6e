"""Compute sizes and alignments of types from a data layout (llvm.org/docs/LangRef.html#data-layout)."""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.toolchain.bitcode.code import TypeCode
from mlir_offload.toolchain.bitcode.type import BitcodeType, TypeTable, TypeWalk

_Widths = dict[int, int]
# The default alignments in bits (llvm/lib/IR/DataLayout.cpp).
_INTEGERS: _Widths = {1: 8, 8: 8, 16: 16, 32: 32, 64: 32}
_FLOATS: _Widths = {16: 16, 32: 32, 64: 64, 128: 128}
_VECTORS: _Widths = {64: 64, 128: 128}
_POINTER = (64, 64)
_FLOAT_BITS = {
    TypeCode.HALF: 16,
    TypeCode.BFLOAT: 16,
    TypeCode.FLOAT: 32,
    TypeCode.DOUBLE: 64,
    TypeCode.X86_FP80: 80,
    TypeCode.FP128: 128,
    TypeCode.PPC_FP128: 128,
}
_MAX_BYTES = 1 << 63
_MAX_DIGITS = 8


class DataLayout(Struct, frozen=True):
    """Alignments in bits by bit width, and the size and alignment of pointers by address space."""

    integers: _Widths
    floats: _Widths
    vectors: _Widths
    pointers: dict[int, tuple[int, int]]
    aggregate: int


class TypeSize(Struct, frozen=True):
    """The size of a type in memory, including tail padding, and its alignment."""

    size_bytes: int
    align_bytes: int


def parse_data_layout(text: str) -> DataLayout:
    """Parse the sizes and alignments in a data layout string. Other parts are ignored."""
    widths = {"i": dict(_INTEGERS), "f": dict(_FLOATS), "v": dict(_VECTORS)}
    pointers = {0: _POINTER}
    aggregate = 8
    for part in text.split("-"):
        head, *numbers = part.split(":")
        if not numbers or not all(_is_number(number) for number in numbers):
            continue
        values = [int(number) for number in numbers]
        kind, width = head[:1], head[1:]
        if kind == "p" and len(values) > 1 and (not width or _is_number(width)):
            pointers[int(width or 0)] = (values[0], values[1])
        elif kind == "a":
            aggregate = max(8, values[0])
        elif kind in widths and _is_number(width):
            widths[kind][int(width)] = values[0]
    return DataLayout(widths["i"], widths["f"], widths["v"], pointers, aggregate)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MAX_DIGITS


class TypeSizes:
    """The sizes of the types of a module."""

    __slots__ = ("_layout", "_table", "_walk")

    def __init__(self, table: TypeTable, layout: DataLayout) -> None:
        """Create an empty cache."""
        self._table = table
        self._layout = layout
        self._walk = TypeWalk(table, self._compute)

    def __call__(self, number: int) -> TypeSize | None:
        """Return the size of a type, or None if it is unsized (opaque or function types).

        Raises VerificationError if the type contains itself or is larger than any memory.
        """
        return self._walk(number)

    def _compute(self, number: int) -> TypeSize | None:
        size = self._size(self._table[number])
        if size and size.size_bytes > _MAX_BYTES:
            raise self._table.malformed(number, "it is larger than any memory")
        return size

    def _size(self, one: BitcodeType) -> TypeSize | None:
        layout = self._layout
        if one.code == TypeCode.INTEGER:
            return _padded(one.number, _nearest(layout.integers, one.number))
        if one.code in {TypeCode.POINTER, TypeCode.OPAQUE_POINTER}:
            return _padded(*layout.pointers.get(one.number, layout.pointers[0]))
        if one.code in _FLOAT_BITS:
            width = _FLOAT_BITS[one.code]
            return _padded(width, layout.floats.get(width, _power_of_two(width)))
        return self._aggregate(one)

    def _aggregate(self, one: BitcodeType) -> TypeSize | None:
        if one.code == TypeCode.VECTOR and not one.is_scalable:
            return self._vector(one)
        if one.code == TypeCode.ARRAY:
            element = self._walk(one.elements[0])
            return element and TypeSize(element.size_bytes * one.number, element.align_bytes)
        if one.code in {TypeCode.STRUCT_ANONYMOUS, TypeCode.STRUCT_NAMED}:
            return self._struct(one)
        return None

    def _vector(self, one: BitcodeType) -> TypeSize | None:
        element = self._table[one.elements[0]]
        size = self._walk(one.elements[0])
        if size is None:
            return None
        width = element.number if element.code == TypeCode.INTEGER else 8 * size.size_bytes
        bits = width * one.number
        return _padded(bits, self._layout.vectors.get(bits, _power_of_two(bits)))

    def _struct(self, one: BitcodeType) -> TypeSize | None:
        offset, alignment = 0, 1 if one.number else self._layout.aggregate // 8
        for element in one.elements:
            size = self._walk(element)
            if size is None:
                return None
            if not one.number:
                offset = aligned(offset, size.align_bytes)
                alignment = max(alignment, size.align_bytes)
            offset += size.size_bytes
        return TypeSize(aligned(offset, alignment), alignment)


def aligned(offset: int, alignment: int) -> int:
    """Return the next offset that is a multiple of the alignment."""
    return -(-offset // alignment) * alignment


def _padded(bits: int, align_bits: int) -> TypeSize:
    align_bytes = max(1, align_bits // 8)
    return TypeSize(aligned(-(-bits // 8), align_bytes), align_bytes)


def _nearest(widths: _Widths, width: int) -> int:
    """Return the alignment of the narrowest integer of at least this width, otherwise of the widest."""
    return widths[min((known for known in widths if known >= width), default=max(widths))]


def _power_of_two(bits: int) -> int:
    return 1 << (max(8, bits) - 1).bit_length()
