"""Vectors of a subgroup's group of lanes: each lane holds a part, or the first lane holds all."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

from msgspec import Struct

from mlir_offload.translate.fixup.rewriter import Place, Rewriter, Value
from mlir_offload.translate.fixup.shuffle import (
    Shuffle,
    binary,
    carrier_of,
    compare,
    i32,
    lane_id,
    shuffle,
)

Values = Generator[str, None, list[str]]
_VECTOR = re.compile(r"vector<(\d+)x(\w+)>")


class Group(Struct, frozen=True):
    """The lanes that work together: how many, the first of them, and this one's place among them."""

    size: int
    first: str
    place_in_group: str
    width: str


def is_distributed(part: str, whole: str, size: int) -> bool:
    """Say whether a vector consists of as many parts of a type as there are lanes."""
    parts, wholes = _VECTOR.fullmatch(part), _VECTOR.fullmatch(whole)
    if parts is None or wholes is None or parts[2] != wholes[2] or not carrier_of(parts[2]):
        return False
    return int(wholes[1]) == size * int(parts[1])


def is_shared(kind: str) -> bool:
    """Say whether a value of a type can be given to every lane."""
    vector = _VECTOR.fullmatch(kind)
    return bool(carrier_of(vector[2] if vector else kind))


def make_group(rewriter: Rewriter, size: int, place: Place) -> Generator[str, None, Group]:
    """Make what tells a lane its group."""
    lane = yield from lane_id(rewriter, place)
    mask = yield from i32(rewriter, -size, place)
    first = yield from binary(rewriter, "andi", lane, mask, place)
    inside = yield from binary(rewriter, "subi", lane, first, place)
    width = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    return Group(size, first, inside, width)


def gather(rewriter: Rewriter, group: Group, value: str, kind: str, place: Place) -> Values:
    """Give every lane the elements of the parts of all lanes, in the order of the lanes."""
    own = yield from elements(rewriter, value, kind, place)
    found: list[str] = []
    for number in range(group.size):
        offset = yield from i32(rewriter, number, place)
        source = yield from binary(rewriter, "addi", group.first, offset, place)
        asked = Shuffle("idx", source, group.width)
        found += yield from _shuffled(rewriter, asked, own, element_types(kind)[0], place)
    return found


def share(
    rewriter: Rewriter, group: Group, values: Sequence[str], kind: str, place: Place
) -> Values:
    """Give every lane the elements that the first one has."""
    asked = Shuffle("idx", group.first, group.width)
    return (yield from _shuffled(rewriter, asked, values, element_types(kind)[0], place))


def scatter(
    rewriter: Rewriter, group: Group, values: Sequence[str], part: str, place: Place
) -> Values:
    """Give every lane its own part of the elements that the first one has."""
    shared = yield from share(rewriter, group, values, part, place)
    count, element = len(element_types(part)), element_types(part)[0]
    chosen = shared[:count]
    for number in range(1, group.size):
        constant = yield from i32(rewriter, number, place)
        is_it = yield from compare(rewriter, "eq", (group.place_in_group, constant), "i32", place)
        others = shared[number * count : (number + 1) * count]
        selected = []
        for old, new in zip(chosen, others, strict=True):
            select = f'"arith.select"({is_it}, {new}, {old})'
            signature = f"(i1, {element}, {element}) -> {element}"
            selected.append((yield from rewriter.value(select, signature, place)))
        chosen = selected
    return chosen


def element_types(kind: str) -> list[str]:
    """Return the types of the elements of a vector; a number is its own element."""
    vector = _VECTOR.fullmatch(kind)
    return [vector[2]] * int(vector[1]) if vector else [kind]


def elements(rewriter: Rewriter, value: str, kind: str, place: Place) -> Values:
    """Make the elements of a vector; a number is its own element."""
    if _VECTOR.fullmatch(kind) is None:
        return [value]
    found = []
    for number, element in enumerate(element_types(kind)):
        operation = f'"vector.extract"({value}) <{{static_position = array<i64: {number}>}}>'
        found.append((yield from rewriter.value(operation, f"({kind}) -> {element}", place)))
    return found


def joined(rewriter: Rewriter, values: Sequence[str], kind: str, place: Place) -> Value:
    """Make a vector of its elements; a number is its own element."""
    if _VECTOR.fullmatch(kind) is None:
        return values[0]
    operation = f'"vector.from_elements"({", ".join(values)})'
    signature = f"({', '.join(element_types(kind))}) -> {kind}"
    return (yield from rewriter.value(operation, signature, place))


def _shuffled(
    rewriter: Rewriter, asked: Shuffle, values: Sequence[str], kind: str, place: Place
) -> Values:
    found = []
    for value in values:
        result, _ = yield from shuffle(rewriter, asked, value, kind, place)
        found.append(result)
    return found
