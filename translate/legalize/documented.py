"""Forms of the dialect's documentation that stock passes refuse, in the form that they take."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.mlir.attribute import Attribute
from mlir_offload.translate.mlir.operation import Block, Operation
from mlir_offload.translate.mlir.type import (
    float_width,
    integer_width,
    parse_shaped,
    with_dialect_types,
    with_memref_space,
)

_PRIVATE_NUMBERS = ("5", "5 : i32", "5 : i64")
_PRIVATE = "#gpu.address_space<private>"
_GLOBAL_NUMBERS = ("1", "1 : i32", "1 : i64", "#gpu.address_space<global>")
_KERNEL = "gpu.func"
_REDUCTION = "gpu.all_reduce"
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
        if operation.name == _REDUCTION and not operation.has("uniform"):
            operation.signature.properties = {"uniform": Attribute(""), **operation.properties}
        if operation.name == "scf.for" and equal.issuperset(operation.operand_names[:3]):
            body = operation.regions[0].blocks[0]
            # All threads count the same rounds of a loop.
            _mark_reductions(body, (argument.name for argument in body.arguments[:1]), equal)


def _is_equal(operation: Operation, equal: set[str]) -> bool:
    name = operation.name
    is_computed = name.startswith("arith.") or name in _COMPUTED
    return (name in _EQUAL or is_computed) and equal.issuperset(operation.operand_names)
