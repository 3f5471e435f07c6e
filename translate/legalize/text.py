"""Device operations and forms that stock passes do not lower, rewritten before they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlir_offload.translate.kind_lowering import NVVM_FORM, SPIRV_FORM, DeviceForm
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Block, Operation
from mlir_offload.translate.mlir.syntax import (
    Attribute,
    float_width,
    integer_width,
    parse_shaped,
    with_dialect_types,
    with_memref_space,
)

if TYPE_CHECKING:
    from mlir_offload.translate.legalize.rewriter import DevicePattern, DeviceRewriter

_PRIVATE_NUMBERS = ("5", "5 : i32", "5 : i64")
_PRIVATE = "#gpu.address_space<private>"
_GLOBAL_NUMBERS = ("1", "1 : i32", "1 : i64", "#gpu.address_space<global>")
_KERNEL = "gpu.func"
_ALL_REDUCE = "gpu.all_reduce"
# Equal for all threads of a block; with them, what is computed of such values alone.
_EQUAL = frozenset(
    {
        *("gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.subgroup_size"),
        *("gpu.num_subgroups", "arith.constant", "memref.dim"),
    }
)
_COMPUTED = frozenset({"affine.apply", "affine.min", "affine.max"})


_NVGPU = "nvgpu"
_BARRIERS = "!nvgpu.mbarrier.group"
_ACCUMULATOR = "!nvgpu.warpgroup.accumulator"
# A warpgroup multiplies 64 rows at a time. Each of its threads has its part of their elements in registers of 32 bits.
_ROWS = 64
_THREADS = 128
_REGISTER = 32
# What convert-nvgpu-to-nvvm makes of values of these types. It leaves parameters and arguments of such types.
_LOWERED = {
    "!nvgpu.tensormap.descriptor": "!llvm.ptr",
    "!nvgpu.mbarrier.token": "i64",
    "!nvgpu.warpgroup.descriptor": "i64",
    "!nvgpu.device.async.token": "i32",
}
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
    "vector.load": "vector.load",
    "vector.store": "vector.store",
}
_NOT_AMDGPU = {
    "gpu.subgroup_broadcast": "subgroup.broadcast_lane",
    "gpu.subgroup_mma_elementwise": "matrix.elementwise",
    "math.clampf": "math.clamp",
}
_REDUCTION = "gpu.subgroup_reduce"
_MATH, _BFLOAT = "math.", "bf16"


def use_documented_forms(module: Operation) -> None:
    """Bring a `gpu.module` to the forms that have a lowering."""
    module.edit_text(lambda text: with_memref_space(text, _PRIVATE_NUMBERS, _PRIVATE))
    _lower_nvgpu_types(module)
    for function in module.operations:
        if function.name == _KERNEL and function.regions and function.regions[0].blocks:
            entry = function.regions[0].blocks[0]
            _mark_reductions(entry, (argument.name for argument in entry.arguments), set())


def use_default_space(operation: Operation) -> None:
    """Bring an operation of the host to memory as any other, which global memory of a device is."""
    operation.edit_text(lambda text: with_memref_space(text, _GLOBAL_NUMBERS, ""))
    _lower_nvgpu_types(operation)


def _lower_nvgpu_types(operation: Operation) -> None:
    """Let parameters and arguments have the types that the operations on them have been lowered to."""
    if not any(inner.name.startswith(f"{_NVGPU}.") for inner in operation.walk_inside()):
        operation.edit_text(lambda text: with_dialect_types(text, _NVGPU, _lowered_type))


def _lowered_type(kind: Attribute) -> str:
    given = kind.parameters
    if kind.name == _ACCUMULATOR:
        return _lowered_accumulator(given["fragmented"])
    if kind.name != _BARRIERS:
        return _LOWERED.get(kind.name, "")
    return f"memref<{given.get('num_barriers', '1')}xi64, {given['memorySpace']}>"


def _lowered_accumulator(fragmented: str) -> str:
    """Return what a thread has of the sums of a warpgroup; nothing for a shape that MLIR does not lower."""
    shape = parse_shaped(fragmented, "vector")
    width = shape and (integer_width(shape.element) or float_width(shape.element))
    if not (shape and width) or None in shape.sizes:
        return ""
    rows, columns = map(int, filter(None, shape.sizes))
    registers = _ROWS * columns // _THREADS * width // _REGISTER
    part = f"struct<({', '.join([shape.element] * registers)})>"
    return f"!llvm.struct<({', '.join([part] * (rows // _ROWS))})>"


def _mark_reductions(block: Block, arguments: Iterable[str], equal: set[str]) -> None:
    """Mark each gpu.all_reduce that every thread of the block reaches because no branch is before it.

    It is in the entry block of a kernel, or in loops of it whose bounds are equal for all threads.
    `equal` are values that all threads have alike, as the `arguments` of the block.
    """
    equal.update(arguments)
    for operation in block.operations:
        if _is_equal(operation, equal):
            equal.add(operation.result_text)
        else:
            equal.discard(operation.result_text)
        if operation.name == _ALL_REDUCE and not operation.has("uniform"):
            operation.signature.properties = {"uniform": Attribute(""), **operation.properties}
        if operation.name == "scf.for" and equal.issuperset(operation.operand_names[:3]):
            body = operation.regions[0].blocks[0]
            # All threads count the same rounds of a loop.
            _mark_reductions(body, (argument.name for argument in body.arguments[:1]), equal)


def _is_equal(operation: Operation, equal: set[str]) -> bool:
    name = operation.name
    is_computed = name.startswith("arith.") or name in _COMPUTED
    return (name in _EQUAL or is_computed) and equal.issuperset(operation.operand_names)


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
