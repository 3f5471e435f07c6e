"""Lower elementwise operations on subgroup matrices to operations on the registers of each thread.

The upstream pass lowers some of them for some types, and crashes for others. Registers are accessed through a cast
between the matrix and its lowered structure, which is folded later.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.translate.legalize.arith import binary, constant
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import Attribute, Shaped, parse_shaped

_CAST = "builtin.unrealized_conversion_cast"
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
_BYTES = frozenset({"si8", "ui8"})


def elementwise(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Create the operation for each register."""
    kind, whole_type = operation.attribute("opType").enumerator, operation.operand_types[0]
    matrix = parse_shaped(whole_type, "!gpu.mma_matrix")
    if matrix is None:
        msg = f"not an operation on matrices: {operation.name} on {whole_type}"
        raise ValueError(msg)
    count, register = _registers(matrix)
    structure = f"!llvm.struct<({', '.join([register] * count)})>" if count > 1 else register
    operands = [rewriter.value(_CAST, (value,), structure) for value in operation.operands]
    whole = operands[0]
    for number in range(count):
        at = {"position": f"array<i64: {number}>"}
        parts = operands
        if count > 1:
            parts = [rewriter.value("llvm.extractvalue", (one,), register, at) for one in operands]
        made = _of_register(rewriter, kind, parts, _type(matrix))
        whole = (
            rewriter.value("llvm.insertvalue", (whole, made), structure, at) if count > 1 else made
        )
    rewriter.replace(operation, (rewriter.value(_CAST, (whole,), whole_type),))


def _registers(matrix: Shaped) -> tuple[int, str]:
    use = Attribute(matrix.parameters[0]).string[0]
    if matrix.element in _BYTES:
        rows, columns = matrix.sizes
        return ((rows if use == "A" else columns) or 0) // 8, "i32"
    return _REGISTERS[matrix.element, use]


def _type(matrix: Shaped) -> str:
    """Return the type of a register."""
    if matrix.element in _BYTES:
        return "vector<4xi8>"
    return "vector<2xf16>" if matrix.element == "f16" else matrix.element


def _of_register(rewriter: DeviceRewriter, kind: str, parts: Sequence[Value], held: str) -> Value:
    register = parts[0].type
    if register != held:
        parts = [rewriter.value("llvm.bitcast", (part,), held) for part in parts]
    made = _computed(rewriter, kind, parts)
    return made if register == held else rewriter.value("llvm.bitcast", (made,), register)


def _computed(rewriter: DeviceRewriter, kind: str, parts: Sequence[Value]) -> Value:
    held = parts[0].type
    if kind == "negatef":
        return rewriter.value("arith.negf", parts, held)
    if kind == "negates":
        number = "dense<0>" if held.startswith("vector") else "0"
        parts = [constant(rewriter, number, held), parts[0]]
    return binary(rewriter, _BINARY[kind], *parts)
