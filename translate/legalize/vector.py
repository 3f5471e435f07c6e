"""Legalize loads and stores of multidimensional vectors, which convert-vector-to-llvm does not lower."""

from __future__ import annotations

from mlir_offload.translate.legalize.arith import constant
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Shaped, float_width, parse_shaped

_MATRIX_RANK = 2


def load(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace a load by vector.transfer_read, which convert-vector-to-scf unrolls."""
    kind = operation.result_types[0]
    matrix = _matrix(kind, operation.operand_types[0])
    if matrix is None:
        rewriter.insert(operation)
        return
    # The operation requires a padding value, although no element is out of bounds.
    padding = constant(rewriter, "0.0" if float_width(matrix.element) else "0", matrix.element)
    rank = len(operation.operands) - 1
    operands = (*operation.operands, padding)
    properties = _properties(rank, matrix, (1, rank, 1, 0))
    rewriter.replace(
        operation, [rewriter.value("vector.transfer_read", operands, kind, properties)]
    )


def store(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace a store by vector.transfer_write."""
    matrix = _matrix(*operation.operand_types[:2])
    if matrix is None:
        rewriter.insert(operation)
        return
    rank = len(operation.operands) - 2
    properties = _properties(rank, matrix, (1, 1, rank, 0))
    rewriter.create("vector.transfer_write", operation.operands, (), properties)


def _matrix(kind: str, memory: str) -> Shaped | None:
    """Return the multidimensional vector, None for other vectors and for memrefs of vectors."""
    vector, memref = parse_shaped(kind, "vector"), parse_shaped(memory, "memref")
    if vector is None or memref is None or len(vector.sizes) < _MATRIX_RANK:
        return None
    return vector if vector.element == memref.element else None


def _properties(rank: int, matrix: Shaped, segments: tuple[int, ...]) -> dict[str, str]:
    count = len(matrix.sizes)
    dimensions = [f"d{number}" for number in range(rank)]
    return {
        "in_bounds": f"[{', '.join(['true'] * count)}]",
        "operandSegmentSizes": f"array<i32: {', '.join(map(str, segments))}>",
        "permutation_map": f"affine_map<({', '.join(dimensions)}) -> ({', '.join(dimensions[-count:])})>",
    }
