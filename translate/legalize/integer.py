"""Expand operations on integers that a pass or a back end does not support for `index`, i1 or i128."""

from __future__ import annotations

from mlir_offload.translate.kind_lowering import SPIRV_FORM
from mlir_offload.translate.legalize.arith import binary, convert, select
from mlir_offload.translate.legalize.elements import (
    compared,
    converted,
    element_of,
    flattened,
    number,
    replace_flattened,
    with_element,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import parse_shaped

_INDEX = "index"
# arith::CmpIPredicate: ne, slt, sge, ult.
_NOT_EQUAL, _LESS, _NOT_LESS, _UNSIGNED_LESS = 1, 2, 5, 6
# The lowering for SPIR-V replaces these intrinsics by mul_hi of OpenCL C.
_INTRINSICS = {
    "arith.mulsi_extended": "llvm.nvvm.mulhi.ll",
    "arith.mului_extended": "llvm.nvvm.mulhi.ull",
}


def extended_sum(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand arith.addui_extended of `index`, and of vectors of several dimensions."""
    left, right = flattened(rewriter, operation)
    kinds = (left.type, with_element(left.type, "i1"))
    if element_of(left.type) == _INDEX:
        total = binary(rewriter, "addi", left, right)
        # The sum has overflown if it is less than an operand.
        results: tuple[Value, ...] = (total, compared(rewriter, _UNSIGNED_LESS, total, left))
    else:
        results = rewriter.create(operation.name, (left, right), kinds).results
    replace_flattened(rewriter, operation, results)


def ceiling(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand arith.ceildivsi: one more than the quotient if that is inexact, and both operands have one sign."""
    quotient, inexact, signs = _quotient(rewriter, operation)
    same = compared(rewriter, _NOT_LESS, signs, 0)
    wrong = binary(rewriter, "andi", inexact, same)
    rewriter.replace(operation, (_stepped(rewriter, "addi", quotient, wrong),))


def floor(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand arith.floordivsi: one less than the quotient if that is inexact, and the operands have different signs."""
    quotient, inexact, signs = _quotient(rewriter, operation)
    differ = compared(rewriter, _LESS, signs, 0)
    wrong = binary(rewriter, "andi", inexact, differ)
    rewriter.replace(operation, (_stepped(rewriter, "subi", quotient, wrong),))


def unsigned_ceiling(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand arith.ceildivui: one more than the quotient if that is inexact."""
    left, right = operation.operands
    quotient = binary(rewriter, "divui", left, right)
    product = binary(rewriter, "muli", quotient, right)
    inexact = compared(rewriter, _NOT_EQUAL, product, left)
    rewriter.replace(operation, (_stepped(rewriter, "addi", quotient, inexact),))


def _quotient(rewriter: DeviceRewriter, operation: Operation) -> tuple[Value, Value, Value]:
    """Return a signed quotient, whether it is inexact, and a number that is negative if the signs differ."""
    left, right = operation.operands
    quotient = binary(rewriter, "divsi", left, right)
    product = binary(rewriter, "muli", quotient, right)
    inexact = compared(rewriter, _NOT_EQUAL, product, left)
    return quotient, inexact, binary(rewriter, "xori", left, right)


def _stepped(rewriter: DeviceRewriter, name: str, quotient: Value, wrong: Value) -> Value:
    """Return a quotient, changed by 1 if it is wrong."""
    if element_of(quotient.type) == "i1":
        return binary(rewriter, "xori", quotient, wrong)
    one, zero = (number(rewriter, step, quotient.type) for step in (1, 0))
    return binary(rewriter, name, quotient, select(rewriter, wrong, one, zero))


def absolute(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.absi of `index`, which LLVM 19 does not convert."""
    (value,) = operation.operands
    if element_of(value.type) != _INDEX:
        rewriter.insert(operation)
        return
    opposite = binary(rewriter, "subi", number(rewriter, 0, value.type), value)
    rewriter.replace(operation, (binary(rewriter, "maxsi", value, opposite),))


def zeros(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.ctlz and math.cttz of `index`, and of vectors of several dimensions."""
    _zeros(rewriter, operation, "i64")


def narrow_zeros(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand math.ctlz and math.cttz like `zeros`, for an `index` of 32 bits."""
    _zeros(rewriter, operation, "i32")


def _zeros(rewriter: DeviceRewriter, operation: Operation, index: str) -> None:
    (value,) = flattened(rewriter, operation)
    kind, is_index = value.type, element_of(value.type) == _INDEX
    if is_index:
        value = converted(rewriter, "index_cast", value, index)
    value = rewriter.value(operation.name, (value,), value.type)
    if is_index:
        value = convert(rewriter, "index_cast", value, kind)
    replace_flattened(rewriter, operation, (value,))


def truth_of_float(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Convert to i1 through i32 for SPIR-V."""
    (value,), (kind,) = operation.operands, operation.result_types
    if element_of(kind) != "i1":
        rewriter.insert(operation)
        return
    wide = converted(rewriter, operation.name.removeprefix("arith."), value, "i32")
    rewriter.replace(operation, (convert(rewriter, "trunci", wide, kind),))


def extended_product(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Expand arith.mulsi_extended and arith.mului_extended of i64 for SPIR-V, and of vectors of several dimensions."""
    _extend_product(rewriter, operation, ("i64",))


def extended_product_of_index(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Do the same, also for an `index` of 64 bits."""
    _extend_product(rewriter, operation, ("i64", _INDEX))


def _extend_product(rewriter: DeviceRewriter, operation: Operation, wide: tuple[str, ...]) -> None:
    left, right = flattened(rewriter, operation)
    kind, element = left.type, element_of(left.type)
    if rewriter.form.name != SPIRV_FORM.name or element not in wide:
        results = rewriter.create(operation.name, (left, right), (kind, kind)).results
    else:
        low = binary(rewriter, "muli", left, right)
        if element == _INDEX:
            left, right = (converted(rewriter, "index_cast", one, "i64") for one in (left, right))
        high = _each(rewriter, _INTRINSICS[operation.name], [left, right])
        results = (low, high if element == "i64" else convert(rewriter, "index_cast", high, kind))
    replace_flattened(rewriter, operation, results)


def _each(rewriter: DeviceRewriter, intrinsic: str, operands: list[Value]) -> Value:
    """Call an intrinsic on numbers, or on each pair of elements."""
    kind = operands[0].type
    vector = parse_shaped(kind, "vector")
    if vector is None:
        names = ", ".join(value.name for value in operands)
        return rewriter.custom(
            f'llvm.call_intrinsic "{intrinsic}"({names}) : (i64, i64) -> i64', "i64"
        )
    made = rewriter.value("llvm.mlir.poison", (), kind)
    for place in range(vector.sizes[0] or 0):
        position = {"static_position": f"array<i64: {place}>"}
        pair = [rewriter.value("vector.extract", (one,), "i64", position) for one in operands]
        high = _each(rewriter, intrinsic, pair)
        made = rewriter.value("vector.insert", (high, made), kind, position)
    return made
