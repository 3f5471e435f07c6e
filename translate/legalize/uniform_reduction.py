"""Mark reductions over a block that all of its threads reach, because upstream lowers only marked ones."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.mlir.operation import Block, Operation
from mlir_offload.translate.mlir.syntax import Attribute

_ALL_REDUCE = "gpu.all_reduce"
# Operations with equal results in all threads of a block, if their operands are equal.
_EQUAL = frozenset(
    {
        *("gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.subgroup_size"),
        *("gpu.num_subgroups", "arith.constant", "memref.dim"),
    }
)
_COMPUTED = frozenset({"affine.apply", "affine.min", "affine.max"})


def mark_reductions(module: Operation) -> None:
    """Mark the reductions in the kernels of a `gpu.module`."""
    for function in module.operations:
        if function.name == "gpu.func" and not function.is_declaration:
            entry = function.regions[0].blocks[0]
            _mark_block(entry, (argument.name for argument in entry.arguments), set())


def _mark_block(block: Block, arguments: Iterable[str], equal: set[str]) -> None:
    """Mark each gpu.all_reduce that all threads of the block reach as uniform.

    These are in the entry block of a kernel, or in its loops with bounds that are equal for all threads.
    `equal` are the values that are equal in all threads, including the `arguments` of the block.
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
            # All threads execute the same iterations.
            _mark_block(body, (argument.name for argument in body.arguments[:1]), equal)


def _is_equal(operation: Operation, equal: set[str]) -> bool:
    name = operation.name
    is_computed = name.startswith("arith.") or name in _COMPUTED
    return (name in _EQUAL or is_computed) and equal.issuperset(operation.operand_names)
