"""Legalize reductions over a block: reduce over each subgroup, then over the results of the subgroups."""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.translate.legalize.arith import binary, compare, convert, i32, when
from mlir_offload.translate.legalize.reduction import (
    Combination,
    Existing,
    Lanes,
    combination_of,
    combined,
    combined_if,
    combined_lanes,
    one_of,
    place_in_block,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.legalize.shuffle import carried, carrier_of, restored
from mlir_offload.translate.mlir.operation import Operation, Value

_UNSIGNED = frozenset({"minui", "maxui"})
_LARGEST_BLOCK = 1024
# Reading a few parts from memory is faster than more shuffles.
_PARTS_OF_LANE = 4
_WORKGROUP = 3
_MEMORY = "__mo_all_reduce"
_POINTER = f"!llvm.ptr<{_WORKGROUP}>"


def all_reduce(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Reduce narrow types in wider ones: integers exactly, f16 and bf16 with one rounding.

    A region of the program is applied to its own type.
    """
    (value,) = operation.operands
    kind = value.type
    if operation.regions and operation.regions[0].blocks:
        region = Combination(kind, region=operation.regions[0])
        rewriter.replace(operation, (_block_reduced(rewriter, value, region),))
        return
    is_integer = kind.startswith("i")
    wide = carrier_of(kind) if is_integer else kind if kind == "f64" else "f32"
    is_unsigned = operation.attribute("op").enumerator in _UNSIGNED
    extend = "extf" if not is_integer else "extui" if is_unsigned else "extsi"
    combination = combination_of(rewriter, operation, wide)
    if kind != wide:
        value = convert(rewriter, extend, value, wide)
    result = _block_reduced(rewriter, value, combination)
    if kind != wide:
        result = convert(rewriter, "trunci" if is_integer else "truncf", result, kind)
    rewriter.replace(operation, (result,))


def _block_reduced(rewriter: DeviceRewriter, value: Value, combination: Combination) -> Value:
    """Reduce over each subgroup; the first subgroup then reduces the parts in workgroup memory.

    One thread writes the result to an element after the parts, so that a second execution does not have
    to wait for the readers of the first.
    """
    if rewriter.form.numbers_subgroups_freely and rewriter.ragged_threads:
        return _reduced_in_memory(rewriter, value, combination)
    size = rewriter.form.subgroup_size
    most = _LARGEST_BLOCK // size
    block = place_in_block(rewriter)
    width, zero = i32(rewriter, size), i32(rewriter, 0)
    # Lanes without a part also read.
    behind = size + most - most // _PARTS_OF_LANE
    memory = _WorkgroupMemory(rewriter, combination.kind, behind + 1)
    part = _part_of_subgroup(rewriter, value, combination, block.existing)
    lane = block.existing.lane
    is_first = compare(rewriter, "eq", lane, zero)

    def leave_part() -> None:
        memory.store(part, binary(rewriter, "divui", block.thread, width))

    def reduce_parts() -> None:
        count = _rounded_up_quotient(rewriter, block.threads, size)
        stride = _rounded_up_quotient(rewriter, count, _PARTS_OF_LANE)
        own = _own_parts(memory, combination, Existing(lane, count), stride)
        lanes = Lanes(most // _PARTS_OF_LANE, are_often_few=True)
        whole = combined_lanes(rewriter, own, combination, lanes, Existing(lane, stride))
        when(rewriter, is_first, lambda: memory.store(whole, i32(rewriter, behind)))

    when(rewriter, is_first, leave_part)
    rewriter.create("gpu.barrier")
    begins = compare(rewriter, "ult", block.thread, width)
    when(rewriter, begins, reduce_parts)
    rewriter.create("gpu.barrier")
    return memory.load(i32(rewriter, behind))


def _part_of_subgroup(
    rewriter: DeviceRewriter, value: Value, combination: Combination, existing: Existing
) -> Value:
    """Reduce over the subgroup; its first lane has the result. A full subgroup does not check which lanes exist."""
    size = rewriter.form.subgroup_size

    def reduced(lanes: Existing | None) -> Value:
        return combined_lanes(rewriter, value, combination, Lanes(size), lanes)

    if rewriter.has_full_subgroups:
        return reduced(None)
    is_full = compare(rewriter, "uge", existing.count, i32(rewriter, size))
    return one_of(rewriter, is_full, lambda: reduced(None), lambda: reduced(existing))


def _reduced_in_memory(rewriter: DeviceRewriter, value: Value, combination: Combination) -> Value:
    """Reduce without subgroups: each step combines the two halves of the remaining values in memory.

    The last step writes the result to the last element, as in `_block_reduced`.
    """
    threads = rewriter.ragged_threads
    memory = _WorkgroupMemory(rewriter, combination.kind, _LARGEST_BLOCK + 1, f"{_MEMORY}_threads")
    thread = place_in_block(rewriter).thread
    behind = i32(rewriter, _LARGEST_BLOCK)
    memory.store(value, thread)
    half = 1 << (threads - 1).bit_length()
    while half > 1:
        half //= 2
        distance, count = i32(rewriter, half), i32(rewriter, min(half, threads - half))
        target = thread if half > 1 else behind

        def combine(distance: Value = distance, target: Value = target) -> None:
            other = binary(rewriter, "addi", thread, distance)
            values = memory.load(thread), memory.load(other)
            memory.store(combined(rewriter, combination, values), target)

        rewriter.create("gpu.barrier")
        when(rewriter, compare(rewriter, "ult", thread, count), combine)
    rewriter.create("gpu.barrier")
    return memory.load(behind)


def _own_parts(
    memory: _WorkgroupMemory, combination: Combination, parts: Existing, stride: Value
) -> Value:
    """Combine every `stride`-th part, starting at the lane's index. Lanes without parts return any value.

    Neighbouring lanes read neighbouring elements.
    """
    rewriter = memory.rewriter
    number = parts.lane
    own = memory.load(number)
    for _ in range(1, _PARTS_OF_LANE):
        number = binary(rewriter, "addi", number, stride)
        exists = compare(rewriter, "ult", number, parts.count)
        own = combined_if(rewriter, exists, combination, (own, memory.load(number)))
    return own


def _rounded_up_quotient(rewriter: DeviceRewriter, value: Value, divisor: int) -> Value:
    by, less_one = i32(rewriter, divisor), i32(rewriter, divisor - 1)
    return binary(rewriter, "divui", binary(rewriter, "addi", value, less_one), by)


class _WorkgroupMemory(Struct, frozen=True):
    """An array in workgroup memory that all reductions of a type in a module share."""

    rewriter: DeviceRewriter
    kind: str
    count: int
    prefix: str = _MEMORY

    def store(self, value: Value, number: Value) -> None:
        """Store a value to an element."""
        bits = carried(self.rewriter, value)
        element = self._element(number)
        self.rewriter.custom(f"llvm.store {bits.name}, {element.name} : {bits.type}, {_POINTER}")

    def load(self, number: Value) -> Value:
        """Load an element."""
        carrier, element = carrier_of(self.kind), self._element(number)
        bits = self.rewriter.custom(f"llvm.load {element.name} : {_POINTER} -> {carrier}", carrier)
        return restored(self.rewriter, bits, self.kind)

    def _element(self, number: Value) -> Value:
        rewriter, carrier = self.rewriter, carrier_of(self.kind)
        name = f"{self.prefix}_{carrier}"
        array = f"!llvm.array<{self.count} x {carrier}>"
        rewriter.add_global(
            name,
            f"llvm.mlir.global internal @{name}() {{addr_space = {_WORKGROUP} : i32}} : {array}",
            rewriter.location,
        )
        start = rewriter.custom(f"llvm.mlir.addressof @{name} : {_POINTER}", _POINTER)
        types = f"({_POINTER}, i32) -> {_POINTER}, {carrier}"
        return rewriter.custom(
            f"llvm.getelementptr {start.name}[{number.name}] : {types}", _POINTER
        )
