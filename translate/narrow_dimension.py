"""Sizes of blocks and grids on AMD GPUs where `index` has 32 bits.

mlir-translate 19 and 22 call functions that return 64 bits for them, whatever the type of the operation.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.rewriter import Rewriter

_DIMENSIONS = frozenset(
    f"rocdl.{of}.dim.{dimension}" for of in ("grid", "workgroup") for dimension in "xyz"
)
_RETURNED = "i64"


def widen_dimensions(functions: Iterable[Operation]) -> None:
    """Let such operations return what is called, and make the narrow number of that."""
    rewriter = Rewriter("%mo_dimension_")
    for function in functions:
        for region in function.regions:
            rewriter.rewrite(region, lambda one: _widen if _is_narrow(one) else None)


def _is_narrow(operation: Operation) -> bool:
    return operation.name in _DIMENSIONS and operation.result_types != [_RETURNED]


def _widen(rewriter: Rewriter, operation: Operation) -> None:
    wide = rewriter.value(operation.name, (), _RETURNED)
    narrow = rewriter.value("llvm.trunc", (wide,), operation.result_types[0])
    rewriter.replace(operation, (narrow,))
