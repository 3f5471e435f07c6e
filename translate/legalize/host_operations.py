"""Expand operations of the host module that upstream passes or the back end of the host compute wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlir_offload.translate.kind_lowering import HOST_FORM
from mlir_offload.translate.legalize.device_module import load_member
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation

if TYPE_CHECKING:
    from mlir_offload.translate.legalize.rewriter import DevicePattern

# The pass arith-expand of LLVM 19 overflows, and expands maximumf and minimumf without regard to the sign of zero.
_PATTERNS = {
    "arith.ceildivsi": "integer.ceiling",
    "arith.ceildivui": "integer.unsigned_ceiling",
    "arith.floordivsi": "integer.floor",
    "arith.maximumf": "extremum.on_host",
    "arith.minimumf": "extremum.on_host",
}
# Only with the words: a short format, which is computed in f32 and rounded twice, or a rounding mode.
_ROUNDED = {
    "arith.sitofp": "rounding.from_integer",
    "arith.truncf": "rounding.truncated",
    "arith.uitofp": "rounding.from_integer",
    "math.fma": "math.fused_on_host",
}
_WORDS = {"math.fma": ("f16",)}
_CONVERTED = ("bf16", "roundingmode")


def expand_host_operations(host: Iterable[Operation], locations: Locations) -> None:
    """Rewrite the operations of the host module. Raises SourceError for one that cannot be computed as written."""
    chosen = [one for one in host if any(map(_pattern_of, one.walk_inside()))]
    if not chosen:
        return
    rewriter = load_member("rewriter.DeviceRewriter")(locations, HOST_FORM)

    def find(operation: Operation) -> DevicePattern | None:
        name = _pattern_of(operation)
        return load_member(name) if name else None

    for function in chosen:
        for region in function.regions:
            rewriter.rewrite(region, find)


def _pattern_of(operation: Operation) -> str:
    """Return the name of the pattern for an operation, an empty string for none."""
    name = operation.name
    if name in _ROUNDED and any(word in operation.head for word in _WORDS.get(name, _CONVERTED)):
        return _ROUNDED[name]
    return _PATTERNS.get(name, "")
