"""Legalize operations on bf16 that back ends do not have, and the maximum and minimum of IEEE 754-2019."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlir_offload.translate.legalize.elements import (
    converted,
    element_of,
    flattened,
    replace_flattened,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import parse_shaped

_BFLOAT = "bf16"
_STEPS = {
    "add": "arith.addf",
    "mul": "arith.mulf",
    "minnumf": "arith.minnumf",
    "maxnumf": "arith.maxnumf",
    "minimumf": "arith.minimumf",
    "maximumf": "arith.maximumf",
}
_FOLDED = {"arith.maxnumf": "llvm.intr.maxnum", "arith.minnumf": "llvm.intr.minnum"}
_INTRINSICS = {"arith.maximumf": "llvm.intr.maximum", "arith.minimumf": "llvm.intr.minimum"}


def in_single(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute an operation on bf16 in f32."""
    (kind,) = operation.result_types
    if element_of(kind) != _BFLOAT:
        rewriter.insert(operation)
        return
    made = _in_single(rewriter, operation.name, operation.operands, operation.properties)
    rewriter.replace(operation, (made,))


def intrinsic(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace a maximum or minimum by an intrinsic, which the pass arith-expand does not expand.

    Its expansion returns any of two zeros with different signs.
    """
    operands = flattened(rewriter, operation)
    replace_flattened(rewriter, operation, (_extremum(rewriter, operation.name, operands),))


def without_folding(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace arith.maxnumf or arith.minnumf by an intrinsic. LLVM 19 folds those with a constant NaN to NaN."""
    flags = operation.properties.get("fastmath", "")
    properties = {"fastmathFlags": flags.replace("#arith.", "#llvm.")} if flags else {}
    operands = flattened(rewriter, operation)
    made = rewriter.value(_FOLDED[operation.name], operands, operands[0].type, properties)
    replace_flattened(rewriter, operation, (made,))


def reduced_in_order(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand vector.reduction of bf16, whose emulation rounds only once, to operations on the elements."""
    vector, *start = operation.operands
    name = _STEPS.get(operation.attribute("kind").body, "")
    shape = parse_shaped(vector.type, "vector")
    if not name or shape is None or shape.element != _BFLOAT:
        rewriter.insert(operation)
        return
    places = ({"static_position": f"array<i64: {n}>"} for n in range(shape.sizes[0] or 0))
    elements = [rewriter.value("vector.extract", (vector,), _BFLOAT, one) for one in places]
    value, *others = (*start, *elements)
    for other in others:
        if name in _INTRINSICS:
            value = _extremum(rewriter, name, (value, other))
        else:
            value = _in_single(rewriter, name, (value, other), {})
    rewriter.replace(operation, (value,))


def _in_single(
    rewriter: DeviceRewriter, name: str, operands: Sequence[Value], properties: Mapping[str, str]
) -> Value:
    wide = [converted(rewriter, "extf", value, "f32") for value in operands]
    single = rewriter.value(name, wide, wide[0].type, properties)
    return converted(rewriter, "truncf", single, _BFLOAT)


def _extremum(rewriter: DeviceRewriter, name: str, operands: Sequence[Value]) -> Value:
    is_short = element_of(operands[0].type) == _BFLOAT
    if is_short:
        operands = [converted(rewriter, "extf", value, "f32") for value in operands]
    made = rewriter.value(_INTRINSICS[name], operands, operands[0].type)
    return converted(rewriter, "truncf", made, _BFLOAT) if is_short else made
