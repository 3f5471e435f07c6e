"""Operations of the math dialect that a release, or the lowering for a GPU, does not have."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping

from mlir_offload.translate.fixup.device_form import DeviceForm
from mlir_offload.translate.fixup.rewriter import Expansion, Place, Rewriter, Value, named
from mlir_offload.translate.fixup.shuffle import binary, compare, convert
from mlir_offload.translate.mlir_text import Operation, split_signature

# Bits of the exponent, and of all: IEEE 754-2019, table 3.5; bfloat16 has the exponent of binary32.
_EXPONENTS = {
    "f16": (0x7C00, 16),
    "bf16": (0x7F80, 16),
    "f32": (0x7F800000, 32),
    "f64": (0x7FF0000000000000, 64),
}
_INTEGER = re.compile(r"i(\d+)")
_BFLOAT = "bf16"


def math_expansions(form: DeviceForm) -> Mapping[str, Expansion]:
    """Return what stands for the operations that a form does not have."""
    found: dict[str, Expansion] = {"math.isnormal": _is_normal, "math.ipowi": _integer_power}
    if form.is_amdgpu:
        found["math.isinf"] = _is_infinite
    else:
        found["math.clampf"] = _clamp
    return found


def widened_bfloat(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Make an operation on bf16 one on f32, in the precision of which SPIR-V computes."""
    attributes, given, results, _ = split_signature(operation.rest)
    operands = list(operation.operands)
    for number, kind in enumerate(given):
        if kind == _BFLOAT:
            operands[number] = yield from convert(
                rewriter, "extf", operands[number], (kind, "f32"), place
            )
    types = ", ".join("f32" if kind == _BFLOAT else kind for kind in given)
    made = f'"{operation.name}"({", ".join(operands)}){attributes}'
    if results != [_BFLOAT]:
        yield named(operation.results, made, f"({types}) -> ({', '.join(results)})", place)
        return
    wide = yield from rewriter.value(made, f"({types}) -> f32", place)
    yield named(operation.results, f'"arith.truncf"({wide})', "(f32) -> bf16", place)


def is_on_bfloat(operation: Operation) -> bool:
    """Say whether it is an operation of the math dialect on numbers of type bf16."""
    _, given, results, _ = split_signature(operation.rest)
    return operation.name.startswith("math.") and _BFLOAT in given and len(results) == 1


def _is_normal(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Compare the exponent with those of zero and subnormal numbers, and of infinity and NaN."""
    kind = _operand_type(operation)
    if kind not in _EXPONENTS:
        yield _unchanged(operation, place)
        return
    exponent, mask, bits = yield from _masked(rewriter, operation.operands[0], kind, place)
    zero = yield from _constant(rewriter, 0, bits, place)
    some = yield from compare(rewriter, "ne", (exponent, zero), bits, place)
    less = yield from compare(rewriter, "ne", (exponent, mask), bits, place)
    yield named(operation.results, f'"arith.andi"({some}, {less})', "(i1, i1) -> i1", place)


def _is_infinite(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    kind = _operand_type(operation)
    if kind not in _EXPONENTS:
        yield _unchanged(operation, place)
        return
    mask, width = _EXPONENTS[kind]
    bits = f"i{width}"
    value = yield from convert(rewriter, "bitcast", operation.operands[0], (kind, bits), place)
    all_but_sign = yield from _constant(rewriter, (1 << (width - 1)) - 1, bits, place)
    magnitude = yield from binary(rewriter, "andi", value, all_but_sign, place, bits)
    infinity = yield from _constant(rewriter, mask, bits, place)
    compared = f'"arith.cmpi"({magnitude}, {infinity}) <{{predicate = 0 : i64}}>'
    yield named(operation.results, compared, f"({bits}, {bits}) -> i1", place)


def _clamp(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    kind = _operand_type(operation)
    value, low, high = operation.operands
    raised = yield from binary(rewriter, "maximumf", value, low, place, kind)
    lowered = f'"arith.minimumf"({raised}, {high})'
    yield named(operation.results, lowered, f"({kind}, {kind}) -> {kind}", place)


def _integer_power(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Square and multiply; a negative exponent leaves 1 and -1, and 0 of other bases."""
    kind = _operand_type(operation)
    if _INTEGER.fullmatch(kind) is None:
        yield _unchanged(operation, place)
        return
    base, exponent = operation.operands
    zero, one, minus = (
        (yield from _constant(rewriter, 0, kind, place)),
        (yield from _constant(rewriter, 1, kind, place)),
        (yield from _constant(rewriter, -1, kind, place)),
    )
    power = yield from _power(rewriter, (base, exponent), (zero, one), kind, place)
    is_one = yield from compare(rewriter, "eq", (base, one), kind, place)
    is_minus = yield from compare(rewriter, "eq", (base, minus), kind, place)
    odd = yield from binary(rewriter, "andi", exponent, one, place, kind)
    is_odd = yield from compare(rewriter, "eq", (odd, one), kind, place)
    sign = yield from _select(rewriter, is_odd, (minus, one), kind, place)
    other = yield from _select(rewriter, is_minus, (sign, zero), kind, place)
    inverse = yield from _select(rewriter, is_one, (one, other), kind, place)
    negative = yield from compare(rewriter, "slt", (exponent, zero), kind, place)
    chosen = f'"arith.select"({negative}, {inverse}, {power})'
    yield named(operation.results, chosen, f"(i1, {kind}, {kind}) -> {kind}", place)


def _power(
    rewriter: Rewriter,
    operands: tuple[str, str],
    constants: tuple[str, str],
    kind: str,
    place: Place,
) -> Value:
    """Make a loop over the bits of the exponent, taken as a number without sign."""
    rewriter.count += 1
    name, inner = f"%mo_{rewriter.count}", place.inside
    zero, one = constants
    values = [f"{name}_{letter}" for letter in "abc"]
    power, square, rest = values
    label = f"^bb0({', '.join(f'{value}: {kind}' for value in values)}):"
    three = f"({', '.join([kind] * 3)})"
    yield f'{place.indent}{name}:3 = "scf.while"({one}, {operands[0]}, {operands[1]}) ({{'
    yield f"{place.indent}{label}"
    more = yield from compare(rewriter, "ne", (rest, zero), kind, inner)
    passed = f'"scf.condition"({more}, {", ".join(values)})'
    yield f"{inner.indent}{passed} : (i1, {', '.join([kind] * 3)}) -> (){place.location}"
    yield f"{place.indent}}}, {{"
    yield f"{place.indent}{label}"
    bit = yield from binary(rewriter, "andi", rest, one, inner, kind)
    is_set = yield from compare(rewriter, "eq", (bit, one), kind, inner)
    product = yield from binary(rewriter, "muli", power, square, inner, kind)
    next_power = yield from _select(rewriter, is_set, (product, power), kind, inner)
    next_square = yield from binary(rewriter, "muli", square, square, inner, kind)
    next_rest = yield from binary(rewriter, "shrui", rest, one, inner, kind)
    yielded = f'"scf.yield"({next_power}, {next_square}, {next_rest})'
    yield f"{inner.indent}{yielded} : {three} -> (){place.location}"
    yield f"{place.indent}}}) : {three} -> {three}{place.location}"
    return f"{name}#0"


def _masked(
    rewriter: Rewriter, value: str, kind: str, place: Place
) -> Generator[str, None, tuple[str, str, str]]:
    """Make the bits of the exponent; return them, the mask of them, and their type."""
    mask, width = _EXPONENTS[kind]
    bits = f"i{width}"
    whole = yield from convert(rewriter, "bitcast", value, (kind, bits), place)
    constant = yield from _constant(rewriter, mask, bits, place)
    return (yield from binary(rewriter, "andi", whole, constant, place, bits)), constant, bits


def _constant(rewriter: Rewriter, value: int, kind: str, place: Place) -> Value:
    operation = f'"arith.constant"() <{{value = {value} : {kind}}}>'
    return (yield from rewriter.value(operation, f"() -> {kind}", place))


def _select(
    rewriter: Rewriter, condition: str, values: tuple[str, str], kind: str, place: Place
) -> Value:
    operation = f'"arith.select"({condition}, {values[0]}, {values[1]})'
    return (yield from rewriter.value(operation, f"(i1, {kind}, {kind}) -> {kind}", place))


def _operand_type(operation: Operation) -> str:
    return split_signature(operation.rest)[1][0]


def _unchanged(operation: Operation, place: Place) -> str:
    operands = ", ".join(operation.operands)
    return f'{place.indent}{operation.results} = "{operation.name}"({operands}){operation.rest}'
