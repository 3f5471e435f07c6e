"""Expand reductions over subgroups to shuffles, for blocks of any size.

Each step combines a lane with the lane whose index differs in one bit. If that lane does not exist, the value is kept.
Thus the first lane of a partial subgroup has the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.legalize.arith import binary, compare, convert, either, i32, select
from mlir_offload.translate.legalize.distribution import elements, joined, vector_type
from mlir_offload.translate.legalize.identifier import linear_thread_id, threads_of_block
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.legalize.shuffle import Shuffle, carrier_of, check_lanes, shuffle
from mlir_offload.translate.mlir.operation import Operation, Region, Value

# The operations on integers and on floating-point numbers.
_COMBINING = {
    "add": ("addi", "addf"),
    "mul": ("muli", "mulf"),
    "minui": ("minui", ""),
    "minsi": ("minsi", ""),
    "minnumf": ("", "minnumf"),
    "maxui": ("maxui", ""),
    "maxsi": ("maxsi", ""),
    "maxnumf": ("", "maxnumf"),
    "and": ("andi", ""),
    "or": ("ori", ""),
    "xor": ("xori", ""),
    "minimumf": ("", "minimumf"),
    "maximumf": ("", "maximumf"),
}


class Combination(Struct, frozen=True):
    """A combination of two values: an operation of the arith dialect, or a region of the program."""

    kind: str
    operation: str = ""
    region: Region | None = None


class Lanes(Struct, frozen=True):
    """The lanes that a value is reduced over: `count` of them, every `stride`-th one.

    `are_often_few`: steps without existing lanes are skipped at run time.
    """

    count: int
    stride: int = 1
    are_often_few: bool = False

    @property
    def distances(self) -> Iterator[int]:
        """Yield the distance of combined lanes for each step."""
        distance = self.stride
        while distance < self.count * self.stride:
            yield distance
            distance *= 2


class Existing(Struct, frozen=True):
    """The lane of the thread and the number of lanes in its subgroup, as values of type i32."""

    lane: Value
    count: Value


def is_redux(operation: Operation) -> bool:
    """Return whether the reduction can be one `redux` instruction of sm_80 and later."""
    is_whole = not operation.has("cluster_size")
    return operation.operand_types == ["i32"] and operation.has("uniform") and is_whole


def subgroup_reduce(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Reduce over the subgroup, each element of a vector separately.

    LLVM's pass is a test pass, and in LLVM 19 supports only subgroups of 32 threads.
    """
    (value,) = operation.operands
    vector = vector_type(value.type)
    combination = combination_of(rewriter, operation, vector[1] if vector else value.type)
    lanes = _lanes_of(rewriter, operation)
    parts = [
        _full_or_not(
            rewriter,
            lambda part=part: combined_lanes(rewriter, part, combination, lanes, None),  # type: ignore[misc] # one type
            part,
            combination,
            lanes,
        )
        for part in elements(rewriter, value)
    ]
    rewriter.replace(operation, (joined(rewriter, parts, value.type),))


def subgroup_redux(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Keep the reduction for full subgroups, and expand it for partial ones.

    The lowering for a GPU later determines whether there is an instruction for it.
    """
    (value,) = operation.operands
    combination = combination_of(rewriter, operation, value.type)

    def whole() -> Value:
        return rewriter.value(operation.name, (value,), value.type, operation.properties)

    lanes = _lanes_of(rewriter, operation)
    rewriter.replace(operation, (_full_or_not(rewriter, whole, value, combination, lanes),))


def combination_of(rewriter: DeviceRewriter, operation: Operation, kind: str) -> Combination:
    """Return the combination of a reduction. Raises SourceError if the type is not supported."""
    name = operation.attribute("op").enumerator
    on_integers, on_floats = _COMBINING.get(name, ("", ""))
    combine = on_integers if kind.startswith("i") else on_floats
    if combine and carrier_of(kind):
        return Combination(kind, combine)
    msg = f"{operation.name} {name} on {kind} has no lowering"
    hint = "reduce numbers of at most 64 bits, or vectors of these"
    raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))


def _lanes_of(rewriter: DeviceRewriter, operation: Operation) -> Lanes:
    size, stride = (operation.attribute(f"cluster_{name}").integer for name in ("size", "stride"))
    lanes = Lanes(size or rewriter.form.subgroup_size, stride or 1)
    check_lanes(rewriter, operation, lanes.count * lanes.stride)
    return lanes


def _full_or_not(
    rewriter: DeviceRewriter,
    whole: Callable[[], Value],
    value: Value,
    combination: Combination,
    lanes: Lanes,
) -> Value:
    """Reduce with `whole` over a full subgroup, and lane by lane over the partial one at the end of a block."""
    if rewriter.has_full_subgroups:
        return whole()
    existing = place_in_block(rewriter).existing
    full = compare(rewriter, "uge", existing.count, i32(rewriter, rewriter.form.subgroup_size))

    def of_first_lane() -> Value:
        """Reduce over the existing lanes, and broadcast the result of the first one."""
        reduced = combined_lanes(rewriter, value, combination, lanes, existing)
        mask = i32(rewriter, ~((lanes.count - 1) * lanes.stride))
        first = binary(rewriter, "andi", existing.lane, mask)
        size = i32(rewriter, rewriter.form.subgroup_size)
        return shuffle(rewriter, Shuffle("idx", first, size), reduced)[0]

    return one_of(rewriter, full, whole, of_first_lane)


def combined_lanes(
    rewriter: DeviceRewriter,
    value: Value,
    combination: Combination,
    lanes: Lanes,
    existing: Existing | None,
) -> Value:
    """Combine step by step. If lanes may be missing, only the first lane has the result."""
    for number in lanes.distances:
        own, distance = value, i32(rewriter, number)

        def step(own: Value = own, distance: Value = distance) -> Value:
            return _combined_at(rewriter, own, combination, distance, existing)

        if existing and lanes.are_often_few:
            needed = compare(rewriter, "ult", distance, existing.count)
            value = one_of(rewriter, needed, step, lambda own=own: own)  # type: ignore[misc] # one type
        else:
            value = step()
    return value


def _combined_at(
    rewriter: DeviceRewriter,
    value: Value,
    combination: Combination,
    distance: Value,
    existing: Existing | None,
) -> Value:
    width = i32(rewriter, rewriter.form.subgroup_size)
    other, _ = shuffle(rewriter, Shuffle("xor", distance, width), value)
    if existing is None:
        return combined(rewriter, combination, (value, other))
    partner = binary(rewriter, "xori", existing.lane, distance)
    exists = compare(rewriter, "ult", partner, existing.count)
    return combined_if(rewriter, exists, combination, (value, other))


def combined_if(
    rewriter: DeviceRewriter, exists: Value, combination: Combination, values: tuple[Value, Value]
) -> Value:
    """Combine two values if the second one exists."""
    if combination.region:
        # The region may have side effects or fail for an undefined value.
        return one_of(
            rewriter, exists, lambda: combined(rewriter, combination, values), lambda: values[0]
        )
    return select(rewriter, exists, combined(rewriter, combination, values), values[0])


def combined(
    rewriter: DeviceRewriter, combination: Combination, values: tuple[Value, Value]
) -> Value:
    """Combine two values."""
    if combination.region is None:
        return binary(rewriter, combination.operation, *values)
    region = combination.region.clone()
    names = [argument.name for argument in region.blocks[0].arguments]
    region.blocks[0].label = ""
    region.rename(dict(zip(names, (value.name for value in values), strict=True)))
    for operation in (one for block in region.blocks for one in block.operations):
        if operation.name == "gpu.yield":
            operation.name = "scf.yield"
    kinds = (combination.kind,)
    return rewriter.create("scf.execute_region", (), kinds, None, (region,)).results[0]


def one_of(
    rewriter: DeviceRewriter,
    condition: Value,
    way: Callable[[], Value],
    other: Callable[[], Value],
) -> Value:
    """Create an scf.if with one result; `way` and `other` create its branches."""
    return either(rewriter, condition, (lambda: (way(),), lambda: (other(),)))[0]


class BlockPlace(Struct, frozen=True):
    """The linear index of a thread, the number of threads of its block, and its lane, as values of type i32."""

    thread: Value
    threads: Value
    existing: Existing


def place_in_block(rewriter: DeviceRewriter) -> BlockPlace:
    """Compute the position of the thread in its block."""
    thread = convert(rewriter, "index_cast", linear_thread_id(rewriter), "i32")
    threads = convert(rewriter, "index_cast", threads_of_block(rewriter), "i32")
    last = i32(rewriter, rewriter.form.subgroup_size - 1)
    lane = binary(rewriter, "andi", thread, last)
    first = binary(rewriter, "subi", thread, lane)
    return BlockPlace(thread, threads, Existing(lane, binary(rewriter, "subi", threads, first)))
