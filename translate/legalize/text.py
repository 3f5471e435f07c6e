"""Device operations that stock passes do not lower, rewritten before they run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlir_offload.translate.device_form import NVVM_FORM, SPIRV_FORM, DeviceForm
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation

if TYPE_CHECKING:
    from mlir_offload.translate.legalize.rewriter import DevicePattern, DeviceRewriter

_PACKAGE = "mlir_offload.translate.legalize"
# Which pattern of which module rewrites an operation. Most kernels have none of them: then no
# pattern is loaded.
_PATTERNS = {
    "arith.extf": "float8.extended",
    "arith.truncf": "float8.truncated",
    "gpu.all_reduce": "block_reduction.all_reduce",
    "gpu.global_id": "identifier.global_id",
    "gpu.num_subgroups": "identifier.num_subgroups",
    "gpu.printf": "assertion.printf",
    "gpu.rotate": "subgroup.rotate_lanes",
    "gpu.shuffle": "subgroup.shuffle_lanes",
    "gpu.subgroup_id": "identifier.subgroup_id",
    "gpu.subgroup_reduce": "reduction.subgroup_reduce",
    "gpu.subgroup_size": "identifier.subgroup_size",
    "gpu.warp_execute_on_lane_0": "warp_execute.execute_on_lane_zero",
    # As LLVM 19 has it.
    "vector.warp_execute_on_lane_0": "warp_execute.execute_on_lane_zero",
    "math.ipowi": "math.integer_power",
    "math.isnormal": "math.is_normal",
}
_NOT_AMDGPU = {
    "gpu.subgroup_broadcast": "subgroup.broadcast_lane",
    "gpu.subgroup_mma_elementwise": "matrix.elementwise",
    "math.clampf": "math.clamp",
}
_REDUCTION = "gpu.subgroup_reduce"
_MATH, _BFLOAT = "math.", "bf16"


def expand_device_operations(
    module: Operation,
    *,
    locations: Locations,
    faults: frozenset[str],
    form: DeviceForm = NVVM_FORM,
) -> None:
    """Rewrite the operations of a `gpu.module` that have no lowering in a form.

    Subgroups are numbered along x, then y, then z, as PTX numbers them. For NVIDIA `cf.assert` is
    expanded where the release lowers it wrongly (`assert_outside_module`).
    """
    patterns = patterns_for(form, faults)
    found = [one for one in module.walk_inside() if _rewritten_by(one, patterns, form)]
    if not found:
        return
    reductions = [one for one in found if one.name == _REDUCTION]
    if (
        reductions
        and form.has_assertions
        and all(map(load_member("reduction.is_redux"), reductions))
    ):
        patterns[_REDUCTION] = "reduction.subgroup_redux"
    rewriter: DeviceRewriter = load_member("rewriter.DeviceRewriter")(locations, form)

    def find(operation: Operation) -> DevicePattern | None:
        name = _rewritten_by(operation, patterns, form)
        return load_member(name) if name else None

    rewriter.rewrite_module(module, find)


def patterns_for(form: DeviceForm, faults: frozenset[str]) -> dict[str, str]:
    """Return the patterns for a form, by the names of operations."""
    if form.is_amdgpu:
        found = {**_PATTERNS, "math.isinf": "math.is_infinite"}
    else:
        found = {**_PATTERNS, **_NOT_AMDGPU}
    if not form.has_assertions:
        found["cf.assert"] = "assertion.printed_assertion"
    elif not form.is_amdgpu:
        found["gpu.cluster_dim_blocks"] = "identifier.cluster_dim_blocks"
        if "assert_outside_module" in faults:
            found["cf.assert"] = "assertion.called_assertion"
    return found


def _rewritten_by(operation: Operation, patterns: Mapping[str, str], form: DeviceForm) -> str:
    """Return the pattern for an operation; none is empty."""
    if form.name == SPIRV_FORM.name and _is_on_bfloat(operation):
        return "math.widened_bfloat"
    return patterns.get(operation.name, "")


def _is_on_bfloat(operation: Operation) -> bool:
    is_math = operation.name.startswith(_MATH)
    return is_math and _BFLOAT in operation.operand_types and len(operation.result_types) == 1


@cache
def load_member(name: str) -> Any:
    """Return what a module of this package defines."""
    module, _, member = name.partition(".")
    return getattr(import_module(f"{_PACKAGE}.{module}"), member)
