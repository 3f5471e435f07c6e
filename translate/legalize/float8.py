"""Expand conversions of 8-bit floats to integer operations; no upstream pass lowers them for GPUs.

Formats: "8-bit Floating Point Formats" of the Open Compute Project, and llvm/ADT/APFloat.h for the others. Values
are rounded to nearest, ties to even. Overflow becomes infinity, or NaN if the format has no infinity.
"""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.translate.legalize.arith import binary, convert, select
from mlir_offload.translate.legalize.elements import (
    chosen,
    compared,
    converted,
    element_of,
    with_number,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value


class _Format(Struct, frozen=True):
    """A format: bits of the mantissa, bias, and the encodings of the largest finite number, overflow and NaN.

    In a format without negative zero, its encoding is NaN.
    """

    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    has_negative_zero: bool = True

    @property
    def has_infinity(self) -> bool:
        """Return whether the format has infinities."""
        return self.overflow != self.nan


_FORMATS = {
    "f8E5M2": _Format(2, 15, 0x7B, 0x7C, 0x7E),
    "f8E4M3": _Format(3, 7, 0x77, 0x78, 0x7C),
    "f8E3M4": _Format(4, 3, 0x6F, 0x70, 0x78),
    "f8E4M3FN": _Format(3, 7, 0x7E, 0x7F, 0x7F),
    "f8E5M2FNUZ": _Format(2, 16, 0x7F, 0x80, 0x80, has_negative_zero=False),
    "f8E4M3FNUZ": _Format(3, 8, 0x7F, 0x80, 0x80, has_negative_zero=False),
    "f8E4M3B11FNUZ": _Format(3, 11, 0x7F, 0x80, 0x80, has_negative_zero=False),
}

# Total bits, mantissa bits and bias: IEEE 754-2019, table 3.5.
_WIDE = {"f32": (32, 23, 127), "f64": (64, 52, 1023)}
_EQ, _ULT, _UGT = 0, 6, 8


def extended(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Convert from an 8-bit format to a wider one, through f32, which represents all values."""
    value, kind = operation.operands[0], operation.result_types[0]
    if element_of(value.type) not in _FORMATS:
        rewriter.insert(operation)
        return
    found = _widened(rewriter, value)
    conversion = {"f32": "", "f64": "extf"}.get(element_of(kind), "truncf")
    made = convert(rewriter, conversion, found, kind) if conversion else found
    rewriter.replace(operation, (made,))


def truncated(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Convert to an 8-bit format."""
    value, kind = operation.operands[0], operation.result_types[0]
    small = element_of(kind)
    if small not in _FORMATS:
        rewriter.insert(operation)
        return
    wide = element_of(value.type)
    if wide in _FORMATS:
        value = _widened(rewriter, value)
    elif wide not in _WIDE:
        value = converted(rewriter, "extf", value, "f32")
    byte = _narrowed(rewriter, value, _FORMATS[small])
    rewriter.replace(operation, (convert(rewriter, "bitcast", byte, kind),))


def _widened(rewriter: DeviceRewriter, value: Value) -> Value:
    of = _FORMATS[element_of(value.type)]
    word = converted(rewriter, "extui", converted(rewriter, "bitcast", value, "i8"), "i32")
    size = with_number(rewriter, "andi", word, 0x7F)
    sign = with_number(rewriter, "shli", with_number(rewriter, "andi", word, 0x80), 24)
    shifted = with_number(rewriter, "shli", size, 23 - of.mantissa)
    normal = with_number(rewriter, "addi", shifted, (127 - of.bias) << 23)
    integer = converted(rewriter, "uitofp", size, "f32")
    unit = 2.0 ** (1 - of.bias - of.mantissa)
    subnormal = converted(
        rewriter, "bitcast", with_number(rewriter, "mulf", integer, repr(unit)), "i32"
    )
    bits = select(rewriter, compared(rewriter, _ULT, size, 1 << of.mantissa), subnormal, normal)
    if of.has_infinity:
        special = with_number(rewriter, "ori", shifted, 0x7F800000)
        bits = select(rewriter, compared(rewriter, _UGT, size, of.largest), special, bits)
    bits = binary(rewriter, "ori", bits, sign)
    if not of.has_infinity:
        is_nan = compared(rewriter, _EQ, size if of.has_negative_zero else word, of.nan)
        bits = chosen(rewriter, is_nan, 0x7FC00000, bits)
    return converted(rewriter, "bitcast", bits, "f32")


def _narrowed(rewriter: DeviceRewriter, value: Value, of: _Format) -> Value:
    width, mantissa, _ = _WIDE[element_of(value.type)]
    bits = converted(rewriter, "bitcast", value, f"i{width}")
    size = with_number(rewriter, "andi", bits, (1 << (width - 1)) - 1)
    found = _rounded(rewriter, size, element_of(value.type), of)
    found = chosen(rewriter, compared(rewriter, _UGT, found, of.largest), of.overflow, found)
    infinity = (1 << (width - 1)) - (1 << mantissa)
    found = chosen(rewriter, compared(rewriter, _UGT, size, infinity), of.nan, found)
    sign = with_number(rewriter, "andi", with_number(rewriter, "shrui", bits, width - 8), 0x80)
    if not of.has_negative_zero:
        sign = select(rewriter, compared(rewriter, _EQ, found, 0), found, sign)
    return converted(rewriter, "trunci", binary(rewriter, "ori", found, sign), "i8")


def _rounded(rewriter: DeviceRewriter, size: Value, wide: str, of: _Format) -> Value:
    """Round a magnitude. The result may be larger than the largest finite number."""
    _, mantissa, bias = _WIDE[wide]
    dropped = mantissa - of.mantissa
    odd = with_number(rewriter, "andi", with_number(rewriter, "shrui", size, dropped), 1)
    half = with_number(rewriter, "addi", size, (1 << (dropped - 1)) - 1)
    moved = with_number(rewriter, "shrui", binary(rewriter, "addi", half, odd), dropped)
    normal = with_number(rewriter, "subi", moved, (bias - of.bias) << of.mantissa)
    # A sum with this number is rounded at the last place of the format's subnormal numbers.
    exponent = 1 - of.bias - of.mantissa + mantissa
    total = with_number(
        rewriter, "addf", converted(rewriter, "bitcast", size, wide), repr(2.0**exponent)
    )
    sum_bits = convert(rewriter, "bitcast", total, size.type)
    subnormal = with_number(rewriter, "subi", sum_bits, (exponent + bias) << mantissa)
    is_subnormal = compared(rewriter, _ULT, size, (bias - of.bias + 1) << mantissa)
    return select(rewriter, is_subnormal, subnormal, normal)
