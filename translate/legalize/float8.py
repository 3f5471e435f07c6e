"""Expand conversions of 8-bit floats to integer operations; no upstream pass lowers them for GPUs.

Formats: "8-bit Floating Point Formats" of the Open Compute Project, and llvm/ADT/APFloat.h for the others. Values
are rounded to nearest, ties to even. Overflow becomes infinity, or NaN if the format has no infinity.
"""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.translate.legalize.arith import binary, constant, convert, select
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import parse_shaped


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
    if _element(value.type) not in _FORMATS:
        rewriter.insert(operation)
        return
    found = _widened(rewriter, value)
    conversion = {"f32": "", "f64": "extf"}.get(_element(kind), "truncf")
    made = convert(rewriter, conversion, found, kind) if conversion else found
    rewriter.replace(operation, (made,))


def truncated(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Convert to an 8-bit format."""
    value, kind = operation.operands[0], operation.result_types[0]
    small = _element(kind)
    if small not in _FORMATS:
        rewriter.insert(operation)
        return
    wide = _element(value.type)
    if wide in _FORMATS:
        value = _widened(rewriter, value)
    elif wide not in _WIDE:
        value = _as(rewriter, "extf", value, "f32")
    byte = _narrowed(rewriter, value, _FORMATS[small])
    rewriter.replace(operation, (convert(rewriter, "bitcast", byte, kind),))


def _element(kind: str) -> str:
    """Return the element type of a vector, or the type of a scalar."""
    shaped = parse_shaped(kind, "vector")
    return shaped.element if shaped else kind


def _of(kind: str, element: str) -> str:
    """Return the type with another element type."""
    return kind.replace(_element(kind), element)


def _number(rewriter: DeviceRewriter, number: float | str, kind: str) -> Value:
    return constant(rewriter, f"dense<{number}>" if kind.startswith("vector") else number, kind)


def _as(rewriter: DeviceRewriter, conversion: str, value: Value, element: str) -> Value:
    return convert(rewriter, conversion, value, _of(value.type, element))


def _with(rewriter: DeviceRewriter, operation: str, value: Value, number: float | str) -> Value:
    return binary(rewriter, operation, value, _number(rewriter, number, value.type))


def _is(rewriter: DeviceRewriter, predicate: int, value: Value, number: int) -> Value:
    other = _number(rewriter, number, value.type)
    properties = {"predicate": f"{predicate} : i64"}
    return rewriter.value("arith.cmpi", (value, other), _of(value.type, "i1"), properties)


def _chosen(rewriter: DeviceRewriter, condition: Value, number: int, other: Value) -> Value:
    return select(rewriter, condition, _number(rewriter, number, other.type), other)


def _widened(rewriter: DeviceRewriter, value: Value) -> Value:
    of = _FORMATS[_element(value.type)]
    word = _as(rewriter, "extui", _as(rewriter, "bitcast", value, "i8"), "i32")
    size = _with(rewriter, "andi", word, 0x7F)
    sign = _with(rewriter, "shli", _with(rewriter, "andi", word, 0x80), 24)
    shifted = _with(rewriter, "shli", size, 23 - of.mantissa)
    normal = _with(rewriter, "addi", shifted, (127 - of.bias) << 23)
    integer = _as(rewriter, "uitofp", size, "f32")
    unit = 2.0 ** (1 - of.bias - of.mantissa)
    subnormal = _as(rewriter, "bitcast", _with(rewriter, "mulf", integer, repr(unit)), "i32")
    bits = select(rewriter, _is(rewriter, _ULT, size, 1 << of.mantissa), subnormal, normal)
    if of.has_infinity:
        special = _with(rewriter, "ori", shifted, 0x7F800000)
        bits = select(rewriter, _is(rewriter, _UGT, size, of.largest), special, bits)
    bits = binary(rewriter, "ori", bits, sign)
    if not of.has_infinity:
        is_nan = _is(rewriter, _EQ, size if of.has_negative_zero else word, of.nan)
        bits = _chosen(rewriter, is_nan, 0x7FC00000, bits)
    return _as(rewriter, "bitcast", bits, "f32")


def _narrowed(rewriter: DeviceRewriter, value: Value, of: _Format) -> Value:
    width, mantissa, _ = _WIDE[_element(value.type)]
    bits = _as(rewriter, "bitcast", value, f"i{width}")
    size = _with(rewriter, "andi", bits, (1 << (width - 1)) - 1)
    found = _rounded(rewriter, size, _element(value.type), of)
    found = _chosen(rewriter, _is(rewriter, _UGT, found, of.largest), of.overflow, found)
    infinity = (1 << (width - 1)) - (1 << mantissa)
    found = _chosen(rewriter, _is(rewriter, _UGT, size, infinity), of.nan, found)
    sign = _with(rewriter, "andi", _with(rewriter, "shrui", bits, width - 8), 0x80)
    if not of.has_negative_zero:
        sign = select(rewriter, _is(rewriter, _EQ, found, 0), found, sign)
    return _as(rewriter, "trunci", binary(rewriter, "ori", found, sign), "i8")


def _rounded(rewriter: DeviceRewriter, size: Value, wide: str, of: _Format) -> Value:
    """Round a magnitude. The result may be larger than the largest finite number."""
    _, mantissa, bias = _WIDE[wide]
    dropped = mantissa - of.mantissa
    odd = _with(rewriter, "andi", _with(rewriter, "shrui", size, dropped), 1)
    half = _with(rewriter, "addi", size, (1 << (dropped - 1)) - 1)
    moved = _with(rewriter, "shrui", binary(rewriter, "addi", half, odd), dropped)
    normal = _with(rewriter, "subi", moved, (bias - of.bias) << of.mantissa)
    # A sum with this number is rounded at the last place of the format's subnormal numbers.
    exponent = 1 - of.bias - of.mantissa + mantissa
    total = _with(rewriter, "addf", _as(rewriter, "bitcast", size, wide), repr(2.0**exponent))
    sum_bits = convert(rewriter, "bitcast", total, size.type)
    subnormal = _with(rewriter, "subi", sum_bits, (exponent + bias) << mantissa)
    is_subnormal = _is(rewriter, _ULT, size, (bias - of.bias + 1) << mantissa)
    return select(rewriter, is_subnormal, subnormal, normal)
