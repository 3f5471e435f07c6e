"""Expand math operations that a release, or the lowering for a GPU, does not support."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mlir_offload.translate.legalize.arith import binary, compare, constant, convert, select
from mlir_offload.translate.legalize.elements import (
    compared,
    converted,
    element_of,
    flat_type,
    flattened,
    number,
    replace_flattened,
    with_element,
    with_number,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.legalize.rounding import rounded_to_odd
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import Attribute, integer_width, parse_shaped

# Exponent mask and total bits: IEEE 754-2019, table 3.5. bfloat16 has the exponent of binary32.
_EXPONENTS = {
    "f16": (0x7C00, 16),
    "bf16": (0x7F80, 16),
    "f32": (0x7F800000, 32),
    "f64": (0x7FF0000000000000, 64),
}
_BFLOAT = "bf16"
_HALF = "f16"
_LIBM = "mo.libm."
# convert-math-to-libm rejects a function with a name of libm, which legalize_host_ir gives them.
_SUFFIXES = {"f32": "f", "f64": ""}
# The ordered predicate of arith.cmpf.
_NOT_GREATER = 5
_NOT_EQUAL = 1  # Of arith.cmpi.
_TRUTH = "i1"
# The widest exponent of math.fpowi, and the largest constant exponent for which it is expanded to products.
_LONGEST, _MOST_FACTORS = 64, 4
# Operations of the LLVM dialect whose names differ from those of math.
_OF_LLVM = {
    "llvm.frem": "arith.remf",
    "llvm.intr.fabs": "math.absf",
    "llvm.intr.pow": "math.powf",
}


def of_llvm(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace an operation of the LLVM dialect by the equivalent math or arith operation."""
    flags = operation.properties.get("fastmathFlags")
    properties = {"fastmath": str(flags).replace("#llvm.", "#arith.")} if flags else {}
    name = _OF_LLVM.get(operation.name) or f"math.{operation.name.rpartition('.')[2]}"
    (kind,) = operation.result_types
    rewriter.replace(operation, (rewriter.value(name, operation.operands, kind, properties),))


def fused(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace a 16-bit math.fma by llvm.intr.fma, because convert-gpu-to-nvvm computes it in f32 and rounds twice."""
    (kind,) = operation.result_types
    vector = parse_shaped(kind, "vector")
    element = vector.element if vector else kind
    count = prod(size or 0 for size in vector.sizes) if vector else 1
    if element not in {_HALF, _BFLOAT} or count == 0:
        rewriter.insert(operation)
        return
    operands, flat = operation.operands, kind
    if vector and len(vector.sizes) != 1:
        flat = f"vector<{count}x{element}>"
        casts = (rewriter.value("vector.shape_cast", (value,), flat) for value in operands)
        operands = tuple(casts)
    flags = operation.properties.get("fastmath")
    properties = {"fastmathFlags": str(flags).replace("#arith.", "#llvm.")} if flags else {}
    made = rewriter.value("llvm.intr.fma", operands, flat, properties)
    if flat != kind:
        made = rewriter.value("vector.shape_cast", (made,), kind)
    rewriter.replace(operation, (made,))


def exactly_fused(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute math.fma of bf16 in f64, because back ends without an instruction compute it in f32 and round twice.

    The product is exact. The sum is rounded to odd, so that the second rounding is harmless (Boldo and
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008). Knuth's TwoSum computes its error.
    """
    (kind,) = operation.result_types
    vector = parse_shaped(kind, "vector")
    if (vector.element if vector else kind) != _BFLOAT:
        fused(rewriter, operation)
        return
    wide = kind.replace(_BFLOAT, "f64")
    first, second, third = (convert(rewriter, "extf", one, wide) for one in operation.operands)
    product = binary(rewriter, "mulf", first, second)
    total = binary(rewriter, "addf", product, third)
    added = binary(rewriter, "subf", total, product)
    lost = binary(rewriter, "subf", product, binary(rewriter, "subf", total, added))
    error = binary(rewriter, "addf", lost, binary(rewriter, "subf", third, added))
    chosen = rounded_to_odd(rewriter, total, error)
    rewriter.replace(operation, (convert(rewriter, "truncf", chosen, kind),))


def fused_in_single(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute math.fma of bf16 in f32, which every OpenCL device supports, and round the sum to odd.

    Rounding to odd changes the result only if the total is a midpoint between two bf16 numbers. Then the sign of the
    error is correct, because the first addition of the error is exact. If the magnitude of the third operand is at
    least half that of the total, that addition is `third - total`, which has no bit below the last bit of the total.
    Otherwise the magnitude of the product is at least half that of the total. Then that addition is
    `product - total`, and the product has no bit more than 15 positions below its first bit.
    """
    (kind,) = operation.result_types
    wide = kind.replace(_BFLOAT, "f32")
    first, second, third = (convert(rewriter, "extf", one, wide) for one in operation.operands)

    def fused_with(value: Value) -> Value:
        return rewriter.value("math.fma", (first, second, value), wide)

    total = fused_with(third)
    rest = binary(rewriter, "subf", third, total)
    size, of_third = (rewriter.value("math.absf", (value,), wide) for value in (rest, third))
    is_large = compared(rewriter, _NOT_GREATER, size, of_third)
    opposite = rewriter.value("arith.negf", (total,), wide)
    of_product = binary(rewriter, "addf", fused_with(opposite), third)
    error = select(rewriter, is_large, fused_with(rest), of_product)
    chosen = rounded_to_odd(rewriter, total, error)
    rewriter.replace(operation, (convert(rewriter, "truncf", chosen, kind),))


def widened_bfloat(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute an operation on bf16, or on vectors of bf16, in f32."""
    operands = [
        converted(rewriter, "extf", value, "f32") if element_of(value.type) == _BFLOAT else value
        for value in flattened(rewriter, operation)
    ]
    kind = flat_type(operation.result_types[0])
    is_short = element_of(kind) == _BFLOAT
    wide = with_element(kind, "f32") if is_short else kind
    result = rewriter.value(operation.name, operands, wide, operation.properties)
    if is_short:
        result = converted(rewriter, "truncf", result, _BFLOAT)
    replace_flattened(rewriter, operation, (result,))


def of_elements(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Apply an operation to vectors of one dimension, because LLVM 19 finds no function for others."""
    kinds = [flat_type(kind) for kind in operation.result_types]
    if kinds == operation.result_types:
        rewriter.insert(operation)
        return
    operands = flattened(rewriter, operation)
    made = rewriter.create(operation.name, operands, kinds, operation.properties)
    replace_flattened(rewriter, operation, made.results)


def near_zero(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Call expm1 or log1p of libm in host code, for each element of a vector.

    The passes add or subtract 1, and their results are 0 for small numbers.
    """
    (value,) = flattened(rewriter, operation)
    kind, element = value.type, element_of(value.type)
    wide = "f32" if element in {_HALF, _BFLOAT} else element
    if wide not in _SUFFIXES:
        rewriter.insert(operation)
        return
    if wide != element:
        value = converted(rewriter, "extf", value, wide)
    vector = parse_shaped(kind, "vector")
    if vector is None:
        made = _in_libm(rewriter, operation.name, value)
    else:
        made = value
        for place in range(vector.sizes[0] or 0):
            position = {"static_position": f"array<i64: {place}>"}
            one = rewriter.value("vector.extract", (value,), wide, position)
            one = _in_libm(rewriter, operation.name, one)
            made = rewriter.value("vector.insert", (one, made), value.type, position)
    if wide != element:
        made = converted(rewriter, "truncf", made, element)
    replace_flattened(rewriter, operation, (made,))


def _in_libm(rewriter: DeviceRewriter, operation: str, value: Value) -> Value:
    kind = value.type
    name = f"{_LIBM}{operation.removeprefix('math.')}{_SUFFIXES[kind]}"
    head = f"func.func private @{name}({kind}) -> {kind} attributes {{llvm.readnone}}"
    rewriter.add_global(name, head, rewriter.location)
    return rewriter.value("func.call", (value,), kind, {"callee": f"@{name}"})


def sine_and_cosine(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.sincos, for which LLVM 22 has only the inexact instructions of AMD GPUs, and none for f64."""
    (value,) = operation.operands
    results = (rewriter.value(f"math.{name}", (value,), value.type) for name in ("sin", "cos"))
    rewriter.replace(operation, tuple(results))


def is_normal(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.isnormal to comparisons of the exponent."""
    (value,) = operation.operands
    element = element_of(value.type)
    if element not in _EXPONENTS:
        rewriter.insert(operation)
        return
    mask, width = _EXPONENTS[element]
    whole = converted(rewriter, "bitcast", value, f"i{width}")
    exponent = with_number(rewriter, "andi", whole, mask)
    some, less = (compared(rewriter, _NOT_EQUAL, exponent, number) for number in (0, mask))
    rewriter.replace(operation, (binary(rewriter, "andi", some, less),))


def is_infinite(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.isinf to a comparison of the magnitude."""
    (value,) = operation.operands
    if value.type not in _EXPONENTS:
        rewriter.insert(operation)
        return
    mask, width = _EXPONENTS[value.type]
    bits = f"i{width}"
    whole = convert(rewriter, "bitcast", value, bits)
    all_but_sign = constant(rewriter, (1 << (width - 1)) - 1, bits)
    magnitude = binary(rewriter, "andi", whole, all_but_sign)
    infinity = constant(rewriter, mask, bits)
    rewriter.replace(operation, (compare(rewriter, "eq", magnitude, infinity),))


def clamp(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.clampf to maximumf with the lower and minimumf with the upper bound."""
    value, low, high = operation.operands
    raised = binary(rewriter, "maximumf", value, low)
    rewriter.replace(operation, (binary(rewriter, "minimumf", raised, high),))


def clamp_on_amdgpu(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.clampf, unless NaN does not occur: then AMD GPUs have an instruction for f16 and f32."""
    flags = str(operation.attribute("fastmath"))
    has_instruction = element_of(operation.result_types[0]) in {_HALF, "f32"}
    if has_instruction and ("nnan" in flags or "fast>" in flags):
        rewriter.insert(operation)
    else:
        clamp(rewriter, operation)


def float_power(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.fpowi to math.powf of the magnitude, which has the sign of the base if the exponent is odd.

    LLVM 22 passes exponents of 8 and 16 bits to functions of 32 bits, and cuts those of 64 bits. Back ends have no
    llvm.powi for GPUs. Exponents beyond 2**24, with f64 beyond 2**53, are rounded; their lowest bit still counts.
    """
    base, exponent = operation.operands
    element = element_of(base.type)
    width = integer_width(element_of(exponent.type))
    if element not in _EXPONENTS or width > _LONGEST:
        rewriter.insert(operation)
        return
    factors = rewriter.constants.get(exponent.name)
    base, exponent = flattened(rewriter, operation)
    if element in {_HALF, _BFLOAT}:
        base = converted(rewriter, "extf", base, "f32")
    if not width:
        exponent = converted(rewriter, "index_cast", exponent, f"i{_LONGEST}")
    flags = {name: operation.properties[name] for name in ("fastmath",) if operation.has(name)}
    if factors is not None and abs(factors) <= _MOST_FACTORS:
        made = _product(rewriter, base, factors, flags)
    else:
        made = _signed_power(rewriter, base, exponent, flags)
    if element in {_HALF, _BFLOAT}:
        made = converted(rewriter, "truncf", made, element)
    replace_flattened(rewriter, operation, (made,))


def _product(
    rewriter: DeviceRewriter, base: Value, factors: int, flags: Mapping[str, Attribute]
) -> Value:
    """Multiply equal factors, or reciprocals if their number is negative.

    The reciprocal is computed first, because the power may overflow.
    """
    one = number(rewriter, "1.0", base.type)
    if factors == 0:
        return one
    if factors < 0:
        base = rewriter.value("arith.divf", (one, base), base.type, flags)
    made = base
    for digit in f"{abs(factors):b}"[1:]:
        made = rewriter.value("arith.mulf", (made, made), base.type, flags)
        if digit == "1":
            made = rewriter.value("arith.mulf", (made, base), base.type, flags)
    return made


def _signed_power(
    rewriter: DeviceRewriter, base: Value, exponent: Value, flags: Mapping[str, Attribute]
) -> Value:
    magnitude = rewriter.value("math.absf", (base,), base.type)
    if element_of(exponent.type) == _TRUTH:
        # Every integer of one bit is 0 or -1.
        exponent = converted(rewriter, "extsi", exponent, "i32")
    power = converted(rewriter, "sitofp", exponent, element_of(base.type))
    power = rewriter.value("math.powf", (magnitude, power), base.type, flags)
    signed = rewriter.value("math.copysign", (power, base), base.type)
    is_odd = compared(rewriter, _NOT_EQUAL, with_number(rewriter, "andi", exponent, 1), 0)
    return select(rewriter, is_odd, signed, power)


def integer_power(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.ipowi: square and multiply. With a negative exponent, the result is 1, -1 or 0."""
    base, exponent = operation.operands
    if not integer_width(base.type):
        rewriter.insert(operation)
        return
    zero, one, minus = (constant(rewriter, number, base.type) for number in (0, 1, -1))
    power = _power(rewriter, base, exponent, zero, one)
    is_one = compare(rewriter, "eq", base, one)
    is_minus = compare(rewriter, "eq", base, minus)
    is_odd = compare(rewriter, "eq", binary(rewriter, "andi", exponent, one), one)
    sign = select(rewriter, is_odd, minus, one)
    other = select(rewriter, is_minus, sign, zero)
    inverse = select(rewriter, is_one, one, other)
    negative = compare(rewriter, "slt", exponent, zero)
    rewriter.replace(operation, (select(rewriter, negative, inverse, power),))


def _power(
    rewriter: DeviceRewriter, base: Value, exponent: Value, zero: Value, one: Value
) -> Value:
    """Create a loop over the bits of the exponent, which is treated as unsigned."""
    kind = base.type
    carried = power, square, rest = [Value(rewriter.fresh_name(), kind) for _ in range(3)]
    with rewriter.region(carried) as before:
        more = compare(rewriter, "ne", rest, zero)
        rewriter.create("scf.condition", (more, *carried))
    with rewriter.region(carried) as after:
        is_set = compare(rewriter, "eq", binary(rewriter, "andi", rest, one), one)
        product = binary(rewriter, "muli", power, square)
        next_power = select(rewriter, is_set, product, power)
        next_square = binary(rewriter, "muli", square, square)
        next_rest = binary(rewriter, "shrui", rest, one)
        rewriter.create("scf.yield", (next_power, next_square, next_rest))
    regions, kinds = (before, after), [kind] * 3
    return rewriter.create("scf.while", (one, base, exponent), kinds, None, regions).results[0]
