"""Operations on matrices of a subgroup, element by element, as operations on the registers of each thread.

The stock pass lowers some of them, for some types, and crashes at the others. Registers are reached through
a cast between the matrix and the structure that it becomes, which folds away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlir_offload.translate.fixup.rewriter import Place, Rewriter, Value, named
from mlir_offload.translate.mlir_text import Operation, split_signature

_KIND = re.compile(r"#gpu<mma_element_wise (\w+)>")
_MATRIX = re.compile(
    r'!gpu\.mma_matrix<(?P<rows>\d+)x(?P<columns>\d+)x(?P<element>\w+), "(?P<use>[ABC])Op">'
)
_BINARY = {
    "addf": "addf",
    "subf": "subf",
    "mulf": "mulf",
    "divf": "divf",
    "maxf": "maximumf",
    "minf": "minimumf",
    "addi": "addi",
    "subi": "subi",
    "muli": "muli",
    "divs": "divsi",
    "divu": "divui",
    "negates": "subi",
}
# NVVM::inferMMAType of mlir/lib/Dialect/LLVMIR/IR/NVVMDialect.cpp: registers, and elements in each.
_REGISTERS = {
    ("f16", "A"): (8, "vector<2xf16>"),
    ("f16", "B"): (8, "vector<2xf16>"),
    ("f16", "C"): (4, "vector<2xf16>"),
    ("f32", "A"): (4, "i32"),
    ("f32", "B"): (4, "i32"),
    ("f32", "C"): (8, "f32"),
    ("f64", "A"): (1, "f64"),
    ("f64", "B"): (1, "f64"),
    ("f64", "C"): (2, "f64"),
    ("i32", "C"): (8, "i32"),
}
_BYTE = re.compile(r"[su]i8")


def elementwise(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Make the operation for each register."""
    attributes, given, _, _ = split_signature(operation.rest)
    kind, matrix = _KIND.search(attributes), _MATRIX.fullmatch(given[0])
    if kind is None or matrix is None:
        msg = f"not an operation on matrices: {operation.rest}"
        raise ValueError(msg)
    count, register = _registers(matrix)
    structure = f"!llvm.struct<({', '.join([register] * count)})>"
    if count == 1:
        structure = register
    operands = []
    for value in operation.operands:
        cast = f'"builtin.unrealized_conversion_cast"({value})'
        operands.append((yield from rewriter.value(cast, f"({given[0]}) -> {structure}", place)))
    whole = operands[0]
    for number in range(count):
        at = f"<{{position = array<i64: {number}>}}>"
        parts = []
        for value in operands:
            part = value
            if count > 1:
                taken = f'"llvm.extractvalue"({value}) {at}'
                part = yield from rewriter.value(taken, f"({structure}) -> {register}", place)
            parts.append(part)
        made = yield from _of_register(rewriter, kind[1], parts, (register, _type(matrix)), place)
        if count > 1:
            put = f'"llvm.insertvalue"({whole}, {made}) {at}'
            signature = f"({structure}, {register}) -> {structure}"
            made = yield from rewriter.value(put, signature, place)
        whole = made
    cast = f'"builtin.unrealized_conversion_cast"({whole})'
    yield named(operation.results, cast, f"({structure}) -> {given[0]}", place)


def _registers(matrix: re.Match[str]) -> tuple[int, str]:
    if _BYTE.fullmatch(matrix["element"]):
        size = int(matrix["rows" if matrix["use"] == "A" else "columns"])
        return size // 8, "i32"
    return _REGISTERS[matrix["element"], matrix["use"]]


def _type(matrix: re.Match[str]) -> str:
    """Return what a register holds."""
    if _BYTE.fullmatch(matrix["element"]):
        return "vector<4xi8>"
    return "vector<2xf16>" if matrix["element"] == "f16" else matrix["element"]


def _of_register(
    rewriter: Rewriter, kind: str, parts: list[str], types: tuple[str, str], place: Place
) -> Value:
    register, held = types
    if register != held:
        given, parts = parts, []
        for part in given:
            parts.append((yield from _bitcast(rewriter, part, register, held, place)))
    made = yield from _computed(rewriter, kind, parts, held, place)
    if register != held:
        made = yield from _bitcast(rewriter, made, held, register, place)
    return made


def _computed(rewriter: Rewriter, kind: str, parts: list[str], held: str, place: Place) -> Value:
    if kind == "negatef":
        return (
            yield from rewriter.value(f'"arith.negf"({parts[0]})', f"({held}) -> {held}", place)
        )
    if kind == "negates":
        number = "dense<0>" if held.startswith("vector") else "0"
        zero = f'"arith.constant"() <{{value = {number} : {held}}}>'
        parts = [(yield from rewriter.value(zero, f"() -> {held}", place)), parts[0]]
    operation = f'"arith.{_BINARY[kind]}"({", ".join(parts)})'
    return (yield from rewriter.value(operation, f"({held}, {held}) -> {held}", place))


def _bitcast(rewriter: Rewriter, value: str, before: str, after: str, place: Place) -> Value:
    cast = f'"llvm.bitcast"({value})'
    return (yield from rewriter.value(cast, f"({before}) -> {after}", place))
