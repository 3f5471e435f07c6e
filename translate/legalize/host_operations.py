"""Expand operations of host code that a release, or each, lowers wrongly or not at all."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.kind_lowering import NVVM_FORM
from mlir_offload.translate.legalize import (
    extremum,
    integer,
    math,
    memory,
    vector,
    vector_mask,
    vector_value,
)
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
    "folded_nan": {
        "arith.maxnumf": extremum.without_folding,
        "arith.minnumf": extremum.without_folding,
    },
}
# convert-index-to-llvm negates the dividend, and divides the least number by -1: a signal. convert-math-to-llvm
# adds or subtracts 1, and its result is 0 for small numbers.
_ALWAYS: dict[str, DevicePattern] = {
    "index.ceildivs": integer.ceiling,
    "index.floordivs": integer.floor,
    "math.expm1": math.near_zero,
    "math.fpowi": math.float_power,
    "math.log1p": math.near_zero,
}
_OF_VECTORS: dict[str, DevicePattern] = {
    "vector.bitcast": vector_value.bitcast,
    "vector.extract": vector_value.extract,
    "vector.insert": vector_value.insert,
    "vector.load": vector.load,
    "vector.mask": vector_mask.mask,
    "vector.store": vector.store,
    "vector.type_cast": vector_value.type_cast,
    **dict.fromkeys(vector.ACCESSES, vector.access),
}


def expand_host_operations(
    functions: Iterable[Operation], faults: frozenset[str], locations: Locations
) -> dict[str, Operation]:
    """Rewrite operations on vectors in functions, and those that releases with these faults lower wrongly.

    Return the declarations of the functions that they call then, by name.
    """
    patterns = (
        _ALWAYS
        | _OF_VECTORS
        | {
            name: pattern
            for fault in faults & _PATTERNS.keys()
            for name, pattern in _PATTERNS[fault].items()
        }
    )
    # These patterns do not depend on the form.
    rewriter = DeviceRewriter(locations, NVVM_FORM)
    for function in functions:
        if any(inner.name in patterns for inner in function.walk_inside()):
            for region in function.regions:
                rewriter.rewrite(region, lambda operation: patterns.get(operation.name))
    return rewriter.globals
