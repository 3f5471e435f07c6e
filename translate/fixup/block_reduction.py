"""Reductions over the block: over each subgroup, and then over what the subgroups have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from mlir_offload.translate.fixup.reduction import (
    REDUCTION,
    Combination,
    Existing,
    Lanes,
    combination_of,
    combined,
    combined_if,
    combined_lanes,
    place_in_block,
)
from mlir_offload.translate.fixup.rewriter import Place, Rewriter, Value, aliased
from mlir_offload.translate.fixup.shuffle import (
    binary,
    carried,
    carrier_of,
    compare,
    convert,
    i32,
    restored,
)
from mlir_offload.translate.mlir_text import Operation, split_signature

_UNSIGNED = frozenset({"minui", "maxui"})
_LARGEST_BLOCK = 1024
# Reading some is faster than exchanging them.
_PARTS_OF_LANE = 4
_WORKGROUP = 3
_MEMORY = "__mo_all_reduce"
_POINTER = f"!llvm.ptr<{_WORKGROUP}>"


def all_reduce(
    rewriter: Rewriter, operation: Operation, lines: Sequence[str], place: Place
) -> Iterator[str]:
    """Reduce narrow numbers in wider ones: exact for integers, rounded once for halves.

    A region of the program works on numbers of its own type.
    """
    attributes, (kind,), *_ = split_signature(operation.rest)
    (value,) = operation.operands
    match = REDUCTION.search(attributes)
    if len(lines) > 2:  # noqa: PLR2004 (a region that holds something)
        region = Combination(kind, region=tuple(lines[1:-1]))
        result = yield from _block_reduced(rewriter, value, region, place)
    else:
        wide = carrier_of(kind) if kind.startswith("i") else kind if kind == "f64" else "f32"
        extend = "extui" if match and match[1] in _UNSIGNED else "extsi"
        there, back = (extend, "trunci") if kind.startswith("i") else ("extf", "truncf")
        combination = combination_of(rewriter, operation, wide, place)
        if kind != wide:
            value = yield from convert(rewriter, there, value, (kind, wide), place)
        result = yield from _block_reduced(rewriter, value, combination, place)
        if kind != wide:
            result = yield from convert(rewriter, back, result, (wide, kind), place)
    yield aliased(operation.results, ((result, kind),), place)


def _block_reduced(rewriter: Rewriter, value: str, combination: Combination, place: Place) -> Value:
    """Reduce over each subgroup, then let the first subgroup reduce what the others left in memory.

    One thread writes the result, behind these: nobody waits for its readers where it runs again.
    """
    if rewriter.form.numbers_subgroups_freely and rewriter.ragged_threads:
        return (yield from _reduced_in_memory(rewriter, value, combination, place))
    size = rewriter.form.subgroup_size
    most = _LARGEST_BLOCK // size
    block = yield from place_in_block(rewriter, place)
    width = yield from i32(rewriter, size, place)
    zero = yield from i32(rewriter, 0, place)
    memory = _WorkgroupMemory(rewriter, combination.kind, most + 1)
    part = yield from combined_lanes(
        rewriter, value, combination, Lanes(size), block.existing, place
    )
    is_first = yield from compare(rewriter, "eq", (block.existing.lane, zero), "i32", place)

    def leave_part(inside: Place) -> Iterator[str]:
        number = yield from binary(rewriter, "divui", block.thread, width, inside)
        yield from memory.store(part, number, inside)

    def reduce_parts(inside: Place) -> Iterator[str]:
        count = yield from _rounded_up_quotient(rewriter, block.threads, size, inside)
        lane = block.existing.lane
        own = yield from _own_parts(memory, combination, Existing(lane, count), inside)
        having = yield from _rounded_up_quotient(rewriter, count, _PARTS_OF_LANE, inside)
        existing = Existing(lane, having)
        lanes = Lanes(most // _PARTS_OF_LANE, are_often_few=True)
        whole = yield from combined_lanes(rewriter, own, combination, lanes, existing, inside)
        behind = yield from i32(rewriter, most, inside)
        yield from _when(is_first, partial(memory.store, whole, behind), inside)

    yield from _when(is_first, leave_part, place)
    yield f'{place.indent}"gpu.barrier"() : () -> (){place.location}'
    begins = yield from compare(rewriter, "ult", (block.thread, width), "i32", place)
    yield from _when(begins, reduce_parts, place)
    yield f'{place.indent}"gpu.barrier"() : () -> (){place.location}'
    behind = yield from i32(rewriter, most, place)
    return (yield from memory.load(behind, place))


def _reduced_in_memory(
    rewriter: Rewriter, value: str, combination: Combination, place: Place
) -> Value:
    """Reduce without subgroups: each step combines two halves of what is left in memory.

    The last step leaves the result behind all of it, as in the other way.
    """
    threads = rewriter.ragged_threads
    memory = _WorkgroupMemory(rewriter, combination.kind, _LARGEST_BLOCK + 1, f"{_MEMORY}_threads")
    thread = (yield from place_in_block(rewriter, place)).thread
    behind = yield from i32(rewriter, _LARGEST_BLOCK, place)
    yield from memory.store(value, thread, place)
    half = 1 << (threads - 1).bit_length()
    while half > 1:
        half //= 2
        distance = yield from i32(rewriter, half, place)
        count = yield from i32(rewriter, min(half, threads - half), place)
        target = thread if half > 1 else behind

        def combine(inside: Place, distance: str = distance, target: str = target) -> Iterator[str]:
            other = yield from binary(rewriter, "addi", thread, distance, inside)
            own = yield from memory.load(thread, inside)
            part = yield from memory.load(other, inside)
            made = yield from combined(rewriter, combination, (own, part), inside)
            yield from memory.store(made, target, inside)

        yield f'{place.indent}"gpu.barrier"() : () -> (){place.location}'
        takes_part = yield from compare(rewriter, "ult", (thread, count), "i32", place)
        yield from _when(takes_part, combine, place)
    yield f'{place.indent}"gpu.barrier"() : () -> (){place.location}'
    return (yield from memory.load(behind, place))


def _own_parts(
    memory: _WorkgroupMemory, combination: Combination, existing: Existing, place: Place
) -> Value:
    """Combine some numbers that lie one after the other; the first lanes have all that exist."""
    rewriter = memory.rewriter
    zero = yield from i32(rewriter, 0, place)
    several = yield from i32(rewriter, _PARTS_OF_LANE, place)
    number = first = yield from binary(rewriter, "muli", existing.lane, several, place)
    own = ""
    for index in range(_PARTS_OF_LANE):
        if index:
            offset = yield from i32(rewriter, index, place)
            number = yield from binary(rewriter, "addi", first, offset, place)
        exists = yield from compare(rewriter, "ult", (number, existing.count), "i32", place)
        select = f'"arith.select"({exists}, {number}, {zero})'
        chosen = yield from rewriter.value(select, "(i1, i32, i32) -> i32", place)
        part = yield from memory.load(chosen, place)
        own = (
            (yield from combined_if(rewriter, exists, combination, (own, part), place))
            if index
            else part
        )
    return own


def _rounded_up_quotient(rewriter: Rewriter, value: str, divisor: int, place: Place) -> Value:
    by = yield from i32(rewriter, divisor, place)
    less_one = yield from i32(rewriter, divisor - 1, place)
    more = yield from binary(rewriter, "addi", value, less_one, place)
    return (yield from binary(rewriter, "divui", more, by, place))


def _when(condition: str, body: Callable[[Place], Iterator[str]], place: Place) -> Iterator[str]:
    yield f'{place.indent}"scf.if"({condition}) ({{'
    yield from body(place.inside)
    yield f'{place.inside.indent}"scf.yield"() : () -> (){place.location}'
    yield f"{place.indent}}}, {{"
    yield f"{place.indent}}}) : (i1) -> (){place.location}"


class _WorkgroupMemory(Struct, frozen=True):
    """Numbers of a type in workgroup memory, the same for all reductions of a module."""

    rewriter: Rewriter
    kind: str
    count: int
    prefix: str = _MEMORY

    def store(self, value: str, number: str, place: Place) -> Iterator[str]:
        """Store a value as the one of a number."""
        bits = yield from carried(self.rewriter, value, self.kind, place)
        element = yield from self._element(number, place)
        types = f"{carrier_of(self.kind)}, {_POINTER}"
        yield f"{place.indent}llvm.store {bits}, {element} : {types}{place.location}"

    def load(self, number: str, place: Place) -> Value:
        """Load the value of a number."""
        element = yield from self._element(number, place)
        types = f"{_POINTER} -> {carrier_of(self.kind)}"
        bits = yield from self.rewriter.value(f"llvm.load {element}", types, place)
        return (yield from restored(self.rewriter, bits, self.kind, place))

    def _element(self, number: str, place: Place) -> Value:
        carrier = carrier_of(self.kind)
        name = f"{self.prefix}_{carrier}"
        array = f"!llvm.array<{self.count} x {carrier}>"
        self.rewriter.globals[name] = (
            f"    llvm.mlir.global internal @{name}() {{addr_space = {_WORKGROUP} : i32}} : {array}{place.location}"
        )
        address = f"llvm.mlir.addressof @{name}"
        start = yield from self.rewriter.value(address, _POINTER, place)
        types = f"({_POINTER}, i32) -> {_POINTER}, {carrier}"
        element = f"llvm.getelementptr {start}[{number}]"
        return (yield from self.rewriter.value(element, types, place))
