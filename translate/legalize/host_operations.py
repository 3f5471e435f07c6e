"""Expand operations of host code that all releases, or one, lower wrongly or not at all."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.kind_lowering import NVVM_FORM
from mlir_offload.translate.legalize import integer, memory, packed_vector
from mlir_offload.translate.legalize.rewriter import DevicePattern, DeviceRewriter
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation

# By the names of faults (`load_faults`).
_PATTERNS: dict[str, dict[str, DevicePattern]] = {
    "divisions": {
        "arith.ceildivsi": integer.ceiling,
        "arith.ceildivui": integer.unsigned_ceiling,
        "arith.floordivsi": integer.floor,
    },
    "atomic_extrema": {"memref.atomic_rmw": memory.atomic_extremum},
}


def expand_host_operations(
    functions: Iterable[Operation], faults: frozenset[str], locations: Locations
) -> None:
    """Rewrite the operations in functions that a release with these faults lowers wrongly."""
    patterns = dict.fromkeys(packed_vector.OPERATIONS, packed_vector.move)
    for fault in faults & _PATTERNS.keys():
        patterns |= _PATTERNS[fault]
    # These patterns do not depend on the form.
    rewriter = DeviceRewriter(locations, NVVM_FORM)
    for function in functions:
        if any(inner.name in patterns for inner in function.walk_inside()):
            for region in function.regions:
                rewriter.rewrite(region, lambda operation: patterns.get(operation.name))
