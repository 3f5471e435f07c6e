"""Reductions over subgroups and blocks, made of shuffles; right for blocks of every size.

Threads combine with the lane whose number differs in one bit, then in the next one. Where that lane does
not exist they keep what they have, so that the first lane of a subgroup that is not full has its result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from functools import partial

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.fixup.rewriter import Place, Rewriter, Value, aliased
from mlir_offload.translate.fixup.shuffle import (
    Shuffle,
    binary,
    carrier_of,
    compare,
    convert,
    i32,
    shuffle,
)
from mlir_offload.translate.fixup.thread import linear_thread_id, threads_of_block
from mlir_offload.translate.mlir_text import Operation, parse_operation, split_signature

REDUCTION = re.compile(r"#gpu<all_reduce_op (\w+)>")
_CLUSTER = re.compile(r"\bcluster_(size|stride) = (\d+)")
_VECTOR = re.compile(r"vector<(\d+)x(\w+)>")
_UNIFORM = re.compile(r"<\{[^}]*\buniform\b")
_ENTRY = re.compile(r" *\^\w+\((.*)\):")
_PARAMETER = re.compile(r"(%[\w$.-]+): ")
# The operation on integers and that on floating-point numbers.
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
    """What makes one value of two of a type: an operation of the arith dialect, or a region's lines."""

    kind: str
    operation: str = ""
    region: tuple[str, ...] = ()


class Lanes(Struct, frozen=True):
    """The lanes that a value is reduced over: `count` of them, every `stride`-th one.

    `are_often_few`: steps that combine no lanes that exist are left out at run time.
    """

    count: int
    stride: int = 1
    are_often_few: bool = False

    @property
    def distances(self) -> Iterator[int]:
        """Return how far the lanes are apart that combine, step by step."""
        distance = self.stride
        while distance < self.count * self.stride:
            yield distance
            distance *= 2


class Existing(Struct, frozen=True):
    """Values of type i32: the thread's own lane, and how many lanes its subgroup has."""

    lane: str
    count: str


def is_redux(operation: Operation) -> bool:
    """Say whether the reduction may become one instruction of sm_80 and later."""
    attributes, operands, *_ = split_signature(operation.rest)
    is_whole = "cluster_size" not in attributes
    return operands == ["i32"] and _UNIFORM.search(attributes) is not None and is_whole


def subgroup_reduce(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Combine over the subgroup; the elements of a vector one after the other.

    The pass of LLVM for it is a test pass, and that of LLVM 19 knows subgroups of 32 threads only.
    """
    attributes, (kind,), *_ = split_signature(operation.rest)
    vector = _VECTOR.fullmatch(kind)
    combination = combination_of(rewriter, operation, vector[2] if vector else kind, place)
    lanes = _lanes_of(rewriter, attributes)
    element = combination.kind
    (value,) = operation.operands
    if not vector:
        reduced = yield from _reduced(rewriter, value, combination, lanes, place)
        yield aliased(operation.results, ((reduced, kind),), place)
        return
    parts = []
    for index in range(int(vector[1])):
        extract = f'"vector.extract"({value}) <{{static_position = array<i64: {index}>}}>'
        part = yield from rewriter.value(extract, f"({kind}) -> {element}", place)
        parts.append((yield from _reduced(rewriter, part, combination, lanes, place)))
    signature = f"({', '.join([element] * len(parts))}) -> {kind}"
    joined = f'"vector.from_elements"({", ".join(parts)})'
    made = yield from rewriter.value(joined, signature, place)
    yield aliased(operation.results, ((made, kind),), place)


def subgroup_redux(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Leave the reduction of subgroups that are full as it is.

    Whether there is an instruction for it is known when the module is lowered for a GPU.
    """
    attributes, (kind,), *_ = split_signature(operation.rest)
    combination = combination_of(rewriter, operation, kind, place)
    kept = f'"{operation.name}"({operation.operands[0]}){attributes}'
    whole = partial(rewriter.value, kept, f"({kind}) -> {kind}")
    lanes = _lanes_of(rewriter, attributes)
    value = operation.operands[0]
    reduced = yield from _full_or_not(rewriter, whole, value, combination, lanes, place)
    yield aliased(operation.results, ((reduced, kind),), place)


def combination_of(
    rewriter: Rewriter, operation: Operation, kind: str, place: Place
) -> Combination:
    """Return what the operation combines by. Raises SourceError where there is nothing for the type."""
    match = REDUCTION.search(operation.rest)
    name = match[1] if match else ""
    on_integers, on_floats = _COMBINING.get(name, ("", ""))
    combine = on_integers if kind.startswith("i") else on_floats
    if combine and carrier_of(kind):
        return Combination(kind, combine)
    msg = f"{operation.name} {name} on {kind} has no lowering"
    hint = "reduce numbers of at most 64 bits, or vectors of these"
    raise SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))


def _lanes_of(rewriter: Rewriter, attributes: str) -> Lanes:
    cluster = {name: int(number) for name, number in _CLUSTER.findall(attributes)}
    return Lanes(cluster.get("size", rewriter.form.subgroup_size), cluster.get("stride", 1))


def _reduced(
    rewriter: Rewriter, value: str, combination: Combination, lanes: Lanes, place: Place
) -> Value:
    whole = partial(combined_lanes, rewriter, value, combination, lanes, None)
    return (yield from _full_or_not(rewriter, whole, value, combination, lanes, place))


def _full_or_not(
    rewriter: Rewriter,
    whole: Callable[[Place], Value],
    value: str,
    combination: Combination,
    lanes: Lanes,
    place: Place,
) -> Value:
    """Reduce over a subgroup in one of two ways: the last one of a block may have fewer threads."""
    if rewriter.has_full_subgroups:
        return (yield from whole(place))
    existing = (yield from place_in_block(rewriter, place)).existing
    size = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    full = yield from compare(rewriter, "uge", (existing.count, size), "i32", place)
    cut = partial(_of_first_lane, rewriter, value, combination, lanes, existing)
    return (yield from _either(rewriter, full, (whole, cut), combination.kind, place))


def _of_first_lane(
    rewriter: Rewriter,
    value: str,
    combination: Combination,
    lanes: Lanes,
    existing: Existing,
    place: Place,
) -> Value:
    """Reduce over the lanes that exist, and give all of them what the first one has."""
    value = yield from combined_lanes(rewriter, value, combination, lanes, existing, place)
    mask = yield from i32(rewriter, ~((lanes.count - 1) * lanes.stride), place)
    first = yield from binary(rewriter, "andi", existing.lane, mask, place)
    size = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    asked = Shuffle("idx", first, size)
    result, _ = yield from shuffle(rewriter, asked, value, combination.kind, place)
    return result


def combined_lanes(
    rewriter: Rewriter,
    value: str,
    combination: Combination,
    lanes: Lanes,
    existing: Existing | None,
    place: Place,
) -> Value:
    """Combine step by step; where lanes may be missing the result is that of the first lane."""
    for number in lanes.distances:
        distance = yield from i32(rewriter, number, place)
        step = partial(_combined_at, rewriter, value, combination, distance, existing)
        if existing and lanes.are_often_few:
            needed = yield from compare(rewriter, "ult", (distance, existing.count), "i32", place)
            own = partial(_given, value)
            value = yield from _either(rewriter, needed, (step, own), combination.kind, place)
        else:
            value = yield from step(place)
    return value


def _combined_at(
    rewriter: Rewriter,
    value: str,
    combination: Combination,
    distance: str,
    existing: Existing | None,
    place: Place,
) -> Value:
    kind = combination.kind
    width = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    other, _ = yield from shuffle(rewriter, Shuffle("xor", distance, width), value, kind, place)
    if existing is None:
        return (yield from combined(rewriter, combination, (value, other), place))
    partner = yield from binary(rewriter, "xori", existing.lane, distance, place)
    exists = yield from compare(rewriter, "ult", (partner, existing.count), "i32", place)
    return (yield from combined_if(rewriter, exists, combination, (value, other), place))


def combined_if(
    rewriter: Rewriter,
    exists: str,
    combination: Combination,
    values: tuple[str, str],
    place: Place,
) -> Value:
    """Combine two values, the second of which may not exist."""
    kind, (value, _) = combination.kind, values
    both = partial(combined, rewriter, combination, values)
    if combination.region:
        # It may fail on what no thread brought.
        return (yield from _either(rewriter, exists, (both, partial(_given, value)), kind, place))
    made = yield from both(place)
    select = f'"arith.select"({exists}, {made}, {value})'
    return (yield from rewriter.value(select, f"(i1, {kind}, {kind}) -> {kind}", place))


def _given(value: str, _: Place) -> Value:
    yield from ()
    return value


def combined(
    rewriter: Rewriter, combination: Combination, values: tuple[str, str], place: Place
) -> Value:
    """Combine two values."""
    kind = combination.kind
    if not combination.region:
        return (yield from binary(rewriter, combination.operation, *values, place, kind))
    entry, *body = combination.region
    found = _ENTRY.match(entry)
    parameters = _PARAMETER.findall(found[1]) if found else []
    rewriter.count += 1
    name = f"%mo_{rewriter.count}"
    yield f'{place.indent}{name} = "scf.execute_region"() ({{'
    yield aliased(", ".join(parameters), [(value, kind) for value in values], place.inside)
    indent = min(operation.indent for line in body if (operation := parse_operation(line)))
    for line in body:
        yields = line.startswith(f'{" " * indent}"gpu.yield"(')
        yield line.replace('"gpu.yield"(', '"scf.yield"(', 1) if yields else line
    yield f"{place.indent}}}) : () -> {kind}{place.location}"
    return name


def _either(
    rewriter: Rewriter,
    condition: str,
    ways: tuple[Callable[[Place], Value], Callable[[Place], Value]],
    kind: str,
    place: Place,
) -> Value:
    """Make an `if` with one value, made in either way."""
    rewriter.count += 1
    name = f"%mo_{rewriter.count}"
    yield f'{place.indent}{name} = "scf.if"({condition}) ({{'
    for way, end in zip(ways, ("}, {", f"}}) : (i1) -> {kind}{place.location}"), strict=True):
        value = yield from way(place.inside)
        yield f'{place.inside.indent}"scf.yield"({value}) : ({kind}) -> (){place.location}'
        yield f"{place.indent}{end}"
    return name


class BlockPlace(Struct, frozen=True):
    """Values of type i32: a thread's number, the threads of its block, and its lane among others."""

    thread: str
    threads: str
    existing: Existing


def place_in_block(rewriter: Rewriter, place: Place) -> Generator[str, None, BlockPlace]:
    """Make the numbers that say where a thread is."""
    linear = yield from linear_thread_id(rewriter, place)
    thread = yield from convert(rewriter, "index_cast", linear, ("index", "i32"), place)
    size = yield from threads_of_block(rewriter, place)
    threads = yield from convert(rewriter, "index_cast", size, ("index", "i32"), place)
    last = yield from i32(rewriter, rewriter.form.subgroup_size - 1, place)
    lane = yield from binary(rewriter, "andi", thread, last, place)
    first = yield from binary(rewriter, "subi", thread, lane, place)
    count = yield from binary(rewriter, "subi", threads, first, place)
    return BlockPlace(thread, threads, Existing(lane, count))
