"""Legalize gpu.warp_execute_on_lane_0: an scf.if around its region, and shuffles of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.legalize.arith import binary, compare, constant, either
from mlir_offload.translate.legalize.distribution import (
    element_types,
    elements,
    gather,
    is_distributed,
    is_shared,
    joined,
    make_group,
    scatter,
    share,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.legalize.shuffle import check_lanes
from mlir_offload.translate.mlir.operation import Block, Operation, Value

# LLVM 19 has the operation in the vector dialect.
_YIELDS = frozenset({"gpu.yield", "vector.yield"})


def execute_on_lane_zero(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Execute the region in the first lane, and pass its results to the other lanes.

    Distributed operands are gathered before the region, and distributed results are scattered after it.
    Raises SourceError for types that cannot be exchanged.
    """
    region, results = operation.regions[0], operation.result_types
    block = region.blocks[0] if region.blocks else Block()
    yielded = _yielded(block)
    size = operation.attribute("warp_size").integer or rewriter.form.subgroup_size
    check_lanes(rewriter, operation, size)
    lane, *given = operation.operands
    _check_exchanged(rewriter, operation, block, [value.type for value in yielded], size)
    group = make_group(rewriter, size)
    gathered: dict[str, list[Value]] = {}
    renamed: dict[str, str] = {}
    for argument, value in zip(block.arguments, given, strict=True):
        if value.type == argument.type:
            renamed[argument.name] = value.name
        else:
            gathered[argument.name] = gather(rewriter, group, value)
    zero = rewriter.index(0)
    if size < rewriter.form.subgroup_size:
        # Each group has a first lane.
        lane = binary(rewriter, "remui", lane, rewriter.index(size))
    region.rename(renamed)
    yielded = [Value(renamed.get(value.name, value.name), value.type) for value in yielded]
    first = compare(rewriter, "eq", lane, zero)
    values = _condition(rewriter, block, gathered, yielded, first)
    made = []
    for whole, part in zip(yielded, results, strict=True):
        own = [values.pop(0) for _ in element_types(whole.type)]
        own = (
            share(rewriter, group, own)
            if part == whole.type
            else scatter(rewriter, group, own, part)
        )
        made.append(joined(rewriter, own, part))
    rewriter.replace(operation, made)


def _yielded(block: Block) -> list[Value]:
    """Remove the terminator of a block, and return the yielded values."""
    if not block.operations or block.operations[-1].name not in _YIELDS:
        return []
    return list(block.operations.pop().operands)


def _condition(
    rewriter: DeviceRewriter,
    block: Block,
    gathered: Mapping[str, Sequence[Value]],
    yielded: Sequence[Value],
    condition: Value,
) -> list[Value]:
    """Move the region to an scf.if, and return the elements of its results, which are 0 in other lanes.

    Elements instead of vectors, because SPIR-V does not support large vectors as results of a branch.
    """
    types = {argument.name: argument.type for argument in block.arguments}

    def execute() -> Sequence[Value]:
        wholes = {
            name: joined(rewriter, parts, types[name]).name for name, parts in gathered.items()
        }
        for operation in block.operations:
            operation.rename_operands(wholes)
            for region in operation.regions:
                region.rename(wholes)
            rewriter.insert(operation)
        values = (Value(wholes.get(value.name, value.name), value.type) for value in yielded)
        return [element for value in values for element in elements(rewriter, value)]

    def skip() -> Sequence[Value]:
        kinds = [kind for value in yielded for kind in element_types(value.type)]
        return [_zero(rewriter, kind) for kind in kinds]

    return list(either(rewriter, condition, (execute, skip)))


def _zero(rewriter: DeviceRewriter, kind: str) -> Value:
    return constant(rewriter, 0 if kind.startswith("i") else 0.0, kind)


def _check_exchanged(
    rewriter: DeviceRewriter, operation: Operation, block: Block, yielded: Sequence[str], size: int
) -> None:
    place = rewriter.locations.of(operation)
    taken = [argument.type for argument in block.arguments]
    given, results = operation.operand_types[1:], operation.result_types
    parts = [*zip(given, taken, strict=True), *zip(results, yielded, strict=True)]
    if not all(is_distributed(*pair, size) for pair in parts if pair[0] != pair[1]) or not all(
        is_shared(kind) for kind in results
    ):
        msg = "gpu.warp_execute_on_lane_0 distributes values whose type has no lowering"
        hint = "use numbers, or vectors of one dimension of them, with an equal part for each lane"
        raise SourceError(msg, hint=hint, location=place)
    threads = rewriter.form.subgroup_size
    if size > threads:
        msg = f"gpu.warp_execute_on_lane_0 for {size} threads, where a subgroup has {threads}"
        hint = "write the size of the GPU's subgroup in brackets, or compile for another GPU"
        raise SourceError(msg, hint=hint, location=place)
