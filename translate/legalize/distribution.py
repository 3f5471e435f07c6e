"""Vectors that are distributed over a group of lanes, or held by its first lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from mlir_offload.translate.legalize.arith import binary, compare, i32, select
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.legalize.shuffle import Shuffle, carrier_of, lane_id, shuffle
from mlir_offload.translate.mlir.operation import Value
from mlir_offload.translate.mlir.syntax import parse_shaped


class Group(Struct, frozen=True):
    """A group of lanes: its size, its first lane, and the index of the current lane in it."""

    size: int
    first: Value
    place_in_group: Value
    width: Value


def vector_type(kind: str) -> tuple[int, str] | None:
    """Return the size and the element type of a one-dimensional vector, None for other types."""
    vector = parse_shaped(kind, "vector")
    if vector is None or len(vector.sizes) != 1 or vector.sizes[0] is None:
        return None
    return vector.sizes[0], vector.element


def is_distributed(part: str, whole: str, size: int) -> bool:
    """Return whether a vector type consists of one part of another type per lane."""
    parts, wholes = vector_type(part), vector_type(whole)
    if parts is None or wholes is None or parts[1] != wholes[1] or not carrier_of(parts[1]):
        return False
    return wholes[0] == size * parts[0]


def is_shared(kind: str) -> bool:
    """Return whether values of a type can be exchanged between lanes."""
    vector = vector_type(kind)
    return bool(carrier_of(vector[1] if vector else kind))


def make_group(rewriter: DeviceRewriter, size: int) -> Group:
    """Create the values that describe the group of the current lane."""
    lane = lane_id(rewriter)
    first = binary(rewriter, "andi", lane, i32(rewriter, -size))
    inside = binary(rewriter, "subi", lane, first)
    return Group(size, first, inside, i32(rewriter, rewriter.form.subgroup_size))


def gather(rewriter: DeviceRewriter, group: Group, value: Value) -> list[Value]:
    """Return in every lane the elements of the parts of all lanes, in the order of the lanes."""
    own = list(elements(rewriter, value))
    found: list[Value] = []
    for number in range(group.size):
        source = binary(rewriter, "addi", group.first, i32(rewriter, number))
        found += _shuffled(rewriter, Shuffle("idx", source, group.width), own)
    return found


def share(rewriter: DeviceRewriter, group: Group, values: Sequence[Value]) -> list[Value]:
    """Broadcast elements from the first lane to all lanes."""
    return _shuffled(rewriter, Shuffle("idx", group.first, group.width), values)


def scatter(
    rewriter: DeviceRewriter, group: Group, values: Sequence[Value], part: str
) -> list[Value]:
    """Distribute the elements of the first lane: each lane gets its own part."""
    shared = share(rewriter, group, values)
    count = len(element_types(part))
    chosen = shared[:count]
    for number in range(1, group.size):
        is_it = compare(rewriter, "eq", group.place_in_group, i32(rewriter, number))
        others = shared[number * count : (number + 1) * count]
        pairs = zip(others, chosen, strict=True)
        chosen = [select(rewriter, is_it, new, old) for new, old in pairs]
    return chosen


def element_types(kind: str) -> list[str]:
    """Return the types of the elements of a vector. A scalar is its own element."""
    vector = vector_type(kind)
    return [vector[1]] * vector[0] if vector else [kind]


def elements(rewriter: DeviceRewriter, value: Value) -> Iterator[Value]:
    """Yield the elements of a vector, created on demand. A scalar is its own element."""
    if vector_type(value.type) is None:
        yield value
        return
    for number, kind in enumerate(element_types(value.type)):
        position = {"static_position": f"array<i64: {number}>"}
        yield rewriter.value("vector.extract", (value,), kind, position)


def joined(rewriter: DeviceRewriter, values: Sequence[Value], kind: str) -> Value:
    """Create a vector from its elements. A scalar is its own element."""
    if vector_type(kind) is None:
        return values[0]
    return rewriter.value("vector.from_elements", values, kind)


def _shuffled(rewriter: DeviceRewriter, asked: Shuffle, values: Sequence[Value]) -> list[Value]:
    return [shuffle(rewriter, asked, value)[0] for value in values]
