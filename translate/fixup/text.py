"""Device operations that stock passes do not lower, rewritten before they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlir_offload.translate.device_form import NVVM_FORM, SPIRV_FORM, DeviceForm
from mlir_offload.translate.fixup.arith import binary, convert
from mlir_offload.translate.fixup.assertion import called_assertion, printed_assertion
from mlir_offload.translate.fixup.block_reduction import all_reduce
from mlir_offload.translate.fixup.float8 import extended, truncated
from mlir_offload.translate.fixup.lane_zero import execute_on_lane_zero
from mlir_offload.translate.fixup.math import is_on_bfloat, math_patterns, widened_bfloat
from mlir_offload.translate.fixup.matrix import elementwise
from mlir_offload.translate.fixup.reduction import is_redux, subgroup_reduce, subgroup_redux
from mlir_offload.translate.fixup.rewriter import DevicePattern, DeviceRewriter
from mlir_offload.translate.fixup.subgroup import broadcast_lane, rotate_lanes, shuffle_lanes
from mlir_offload.translate.fixup.thread import linear_thread_id, threads_of_block
from mlir_offload.translate.mlir.location import Locations
from mlir_offload.translate.mlir.operation import Operation, Value

_NARROW = {"i1": "extui", "i8": "extsi", "i16": "extsi"}


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
    patterns = _patterns(module, form, faults)
    DeviceRewriter(locations, form).rewrite_module(module, _finder(patterns, form))


def _finder(
    patterns: Mapping[str, DevicePattern], form: DeviceForm
) -> Callable[[Operation], DevicePattern | None]:
    if form.name != SPIRV_FORM.name:
        return lambda operation: patterns.get(operation.name)
    return lambda operation: (
        widened_bfloat if is_on_bfloat(operation) else patterns.get(operation.name)
    )


def _patterns(
    module: Operation, form: DeviceForm, faults: frozenset[str]
) -> Mapping[str, DevicePattern]:
    patterns = {**_PATTERNS, **math_patterns(form)}
    if not form.has_assertions:
        patterns["cf.assert"] = printed_assertion
    if form.is_amdgpu:
        return patterns
    patterns["gpu.subgroup_broadcast"] = broadcast_lane
    patterns["gpu.subgroup_mma_elementwise"] = elementwise
    if not form.has_assertions:
        return patterns
    if "assert_outside_module" in faults:
        patterns["cf.assert"] = called_assertion
    reductions = (one for one in module.walk_inside() if one.name == "gpu.subgroup_reduce")
    if all(map(is_redux, reductions)):
        patterns["gpu.subgroup_reduce"] = subgroup_redux
    return patterns


def _subgroup_size(rewriter: DeviceRewriter, operation: Operation) -> None:
    rewriter.replace(operation, (rewriter.index(rewriter.form.subgroup_size),))


def _subgroup_id(rewriter: DeviceRewriter, operation: Operation) -> None:
    linear = linear_thread_id(rewriter)
    size = rewriter.index(rewriter.form.subgroup_size)
    rewriter.replace(operation, (binary(rewriter, "divui", linear, size),))


def _num_subgroups(rewriter: DeviceRewriter, operation: Operation) -> None:
    threads = threads_of_block(rewriter)
    size = rewriter.index(rewriter.form.subgroup_size)
    rewriter.replace(operation, (binary(rewriter, "ceildivui", threads, size),))


def _global_id(rewriter: DeviceRewriter, operation: Operation) -> None:
    dimension = operation.attribute("dimension").enumerator
    block, extent, thread = (
        rewriter.identifier(kind, dimension) for kind in ("block_id", "block_dim", "thread_id")
    )
    start = binary(rewriter, "muli", block, extent)
    rewriter.replace(operation, (binary(rewriter, "addi", start, thread),))


def _printf(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Widen integers to the 32 bits that printf takes for them at least, as C does, and index to 64."""
    operation.operands = [_printed(rewriter, value) for value in operation.operands]
    rewriter.insert(operation)


def _printed(rewriter: DeviceRewriter, value: Value) -> Value:
    if value.type == "index":
        return convert(rewriter, "index_cast", value, "i64")
    return convert(rewriter, _NARROW[value.type], value, "i32") if value.type in _NARROW else value


_PATTERNS: dict[str, DevicePattern] = {
    "arith.extf": extended,
    "arith.truncf": truncated,
    "gpu.all_reduce": all_reduce,
    "gpu.global_id": _global_id,
    "gpu.num_subgroups": _num_subgroups,
    "gpu.printf": _printf,
    "gpu.rotate": rotate_lanes,
    "gpu.shuffle": shuffle_lanes,
    "gpu.subgroup_id": _subgroup_id,
    "gpu.subgroup_reduce": subgroup_reduce,
    "gpu.subgroup_size": _subgroup_size,
    "gpu.warp_execute_on_lane_0": execute_on_lane_zero,
}
