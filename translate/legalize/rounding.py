"""Expand conversions that back ends round twice, or in another direction than the program says."""

from __future__ import annotations

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.kind_lowering import SPIRV_FORM
from mlir_offload.translate.legalize import float8
from mlir_offload.translate.legalize.arith import binary, convert, select
from mlir_offload.translate.legalize.elements import (
    compared,
    converted,
    element_of,
    number,
    with_element,
    with_number,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import integer_width

_BFLOAT = "bf16"
_MODE = "roundingmode"
# arith::RoundingMode.
_NEAREST, _DOWNWARD, _UPWARD, _TOWARD_ZERO = range(4)
# The bits of the results that are rounded in a direction.
_BITS = {"f16": "i16", _BFLOAT: "i16", "f32": "i32"}
# Predicates of arith.cmpi and arith.cmpf.
_NOT_EQUAL, _LESS, _AT_LEAST = 1, 2, 5
_ABOVE, _BELOW, _UNEQUAL = 2, 4, 6
# f32 holds every integer of 24 bits. Its exponent has a bias of 127, and its mantissa 23 bits.
_DIGITS, _BIAS, _MANTISSA = 24, 127, 23
_SHORT, _LONG = 32, 64


def truncated(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand arith.truncf in a direction, to an 8-bit format, and of f64 to bf16 for SPIR-V.

    mlir-translate emits an intrinsic with the direction, which all back ends ignore (LLVM 19 and 22).
    """
    (value,), (kind,) = operation.operands, operation.result_types
    mode = operation.attribute(_MODE).integer or _NEAREST
    if mode != _NEAREST:
        if mode > _TOWARD_ZERO or element_of(kind) not in _BITS:
            msg = f"arith.truncf to {element_of(kind)} with this rounding mode is not supported"
            hint = "leave out the mode, or use downward, upward or toward_zero with a result of f16, bf16 or f32"
            raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))
        rewriter.replace(operation, (_directed(rewriter, value, kind, mode),))
    elif operation.has(_MODE) or _is_wide(rewriter, value, kind):
        rewriter.replace(operation, (_nearest(rewriter, value, kind),))
    else:
        float8.truncated(rewriter, operation)


def extended(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand arith.extf of bf16 to f64 for SPIR-V, and of 8-bit formats."""
    (value,), (kind,) = operation.operands, operation.result_types
    if rewriter.form.name == SPIRV_FORM.name and element_of(value.type) == _BFLOAT:
        single = converted(rewriter, "extf", value, "f32")
        if element_of(kind) == "f64":
            single = convert(rewriter, "extf", single, kind)
        rewriter.replace(operation, (single,))
    else:
        float8.extended(rewriter, operation)


def from_integer(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand a conversion of an integer to bf16, which back ends round to f32 before, and of a signed i1.

    LLVM 19 makes 1.0 of the signed i1 for NVIDIA GPUs, instead of -1.0, and LLVM 22 if the result is bf16.
    """
    (value,), (kind,) = operation.operands, operation.result_types
    bits = integer_width(element_of(value.type))
    if bits == 1 and operation.name == "arith.sitofp":
        minus, zero = (number(rewriter, text, kind) for text in ("-1.0", "0.0"))
        rewriter.replace(operation, (select(rewriter, value, minus, zero),))
        return
    if element_of(kind) != _BFLOAT or not bits:
        rewriter.insert(operation)
        return
    if bits > _LONG:
        msg = f"{operation.name} of i{bits} to bf16 is not supported"
        hint = "convert to f32, then to bf16: the result is rounded twice"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))
    is_signed, name = operation.name == "arith.sitofp", operation.name.removeprefix("arith.")
    if bits <= _DIGITS:
        single = converted(rewriter, name, value, "f32")
    else:
        width = _SHORT if bits <= _SHORT else _LONG
        if bits < width:
            value = converted(rewriter, "extsi" if is_signed else "extui", value, f"i{width}")
        single = _odd_single(rewriter, value, width, is_signed=is_signed)
    rewriter.replace(operation, (convert(rewriter, "truncf", single, kind),))


def rounded_to_odd(rewriter: DeviceRewriter, total: Value, error: Value) -> Value:
    """Return a number rounded to odd, given the number rounded to nearest and an error with the correct sign."""
    bits = with_element(total.type, "i32" if element_of(total.type) == "f32" else "i64")
    inexact = compared(rewriter, _UNEQUAL, error, "0.0")
    grows = compared(rewriter, _ABOVE, error, "0.0")
    whole = convert(rewriter, "bitcast", total, bits)
    # The total may be a zero, whose sign is only in its bits.
    positive = compared(rewriter, _AT_LEAST, whole, 0)
    # Round toward zero (add -1 to the bits if the signs of the error and the total differ), then to odd.
    step = convert(rewriter, "extsi", binary(rewriter, "xori", grows, positive), bits)
    odd = with_number(rewriter, "ori", binary(rewriter, "addi", whole, step), 1)
    return convert(rewriter, "bitcast", select(rewriter, inexact, odd, whole), total.type)


def _is_wide(rewriter: DeviceRewriter, value: Value, kind: str) -> bool:
    is_spirv = rewriter.form.name == SPIRV_FORM.name
    return is_spirv and element_of(value.type) == "f64" and element_of(kind) == _BFLOAT


def _nearest(rewriter: DeviceRewriter, value: Value, kind: str) -> Value:
    """Create a conversion to nearest."""
    if _is_wide(rewriter, value, kind):
        single = converted(rewriter, "truncf", value, "f32")
        error = binary(rewriter, "subf", value, converted(rewriter, "extf", single, "f64"))
        value = rounded_to_odd(rewriter, single, error)
    return convert(rewriter, "truncf", value, kind)


def _directed(rewriter: DeviceRewriter, value: Value, kind: str, mode: int) -> Value:
    """Create a conversion to nearest, and step to the neighbor if the direction requires it."""
    near = _nearest(rewriter, value, kind)
    bits = converted(rewriter, "bitcast", near, _BITS[element_of(kind)])
    back = convert(rewriter, "extf", near, value.type)
    above, below = (compared(rewriter, order, back, value) for order in (_ABOVE, _BELOW))
    negative = compared(rewriter, _LESS, bits, 0)
    zero, one, minus = (number(rewriter, step, bits.type) for step in (0, 1, -1))
    inward, outward = (minus, one)
    if mode == _TOWARD_ZERO:
        wrong, step = select(rewriter, negative, below, above), inward
    elif mode == _DOWNWARD:
        wrong, step = above, select(rewriter, negative, outward, inward)
    else:
        wrong, step = below, select(rewriter, negative, inward, outward)
    moved = binary(rewriter, "addi", bits, select(rewriter, wrong, step, zero))
    return convert(rewriter, "bitcast", moved, kind)


def _odd_single(rewriter: DeviceRewriter, value: Value, width: int, *, is_signed: bool) -> Value:
    """Create a conversion of an integer of 32 or 64 bits to f32, rounded to odd.

    If the magnitude has more than 24 bits, the others are shifted out, and the last bit is set if one of them was.
    """
    kind = value.type
    size = _magnitude(rewriter, value) if is_signed else value
    zeros = rewriter.value("math.ctlz", (size,), kind)
    excess = binary(rewriter, "subi", number(rewriter, width - _DIGITS, kind), zeros)
    shift = with_number(rewriter, "maxsi", excess, 0)
    kept = binary(rewriter, "shrui", size, shift)
    lost = binary(rewriter, "subi", size, binary(rewriter, "shli", kept, shift))
    is_lost = convert(rewriter, "extui", compared(rewriter, _NOT_EQUAL, lost, 0), kind)
    odd = binary(rewriter, "ori", kept, is_lost)
    if width != _SHORT:
        odd, shift = (converted(rewriter, "trunci", one, "i32") for one in (odd, shift))
    single = converted(rewriter, "sitofp", odd, "f32")
    exponent = with_number(rewriter, "addi", shift, _BIAS)
    scale = converted(
        rewriter, "bitcast", with_number(rewriter, "shli", exponent, _MANTISSA), "f32"
    )
    single = binary(rewriter, "mulf", single, scale)
    if not is_signed:
        return single
    minus = rewriter.value("arith.negf", (single,), single.type)
    return select(rewriter, compared(rewriter, _LESS, value, 0), minus, single)


def _magnitude(rewriter: DeviceRewriter, value: Value) -> Value:
    opposite = binary(rewriter, "subi", number(rewriter, 0, value.type), value)
    return select(rewriter, compared(rewriter, _LESS, value, 0), opposite, value)
