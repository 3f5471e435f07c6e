"""Values exchanged within a subgroup, in the types and modes that the lowering of each GPU has."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from msgspec import Struct

from mlir_offload.translate.fixup.rewriter import Place, Rewriter, Value, named

Pair = Generator[str, None, tuple[str, str]]
_INTEGER = re.compile(r"i(\d+)")
_EXCHANGED = frozenset({"i32", "i64", "f32", "f64"})
_HALVES = frozenset({"f16", "bf16"})
_WORD, _LONG = 32, 64
# How the lane that a value comes from is computed of the thread's own and the offset.
_OF_LANE = {"xor": "xori", "up": "subi", "down": "addi"}


class Shuffle(Struct, frozen=True):
    """What a shuffle is asked for; `offset` and `width` are values of type i32."""

    mode: str
    offset: str
    width: str


def carrier_of(kind: str) -> str:
    """Return the type in which values of a type are exchanged, "" where there is none."""
    if kind in _EXCHANGED:
        return kind
    if kind in _HALVES:
        return "i32"
    match = _INTEGER.fullmatch(kind)
    bits = int(match[1]) if match else _LONG
    return "i32" if bits < _WORD else "i64" if bits < _LONG else ""


def shuffle(rewriter: Rewriter, asked: Shuffle, value: str, kind: str, place: Place) -> Pair:
    """Make a shuffle of the whole subgroup; return the value, and whether there was a lane to take it from."""
    if rewriter.form.is_amdgpu and asked.mode in {"up", "down"}:
        lane = yield from lane_id(rewriter, place)
        source, valid = yield from _source_lane(rewriter, asked, lane, place)
        asked = Shuffle("idx", source, asked.width)
        result, _ = yield from _shuffle(rewriter, asked, value, kind, place)
        return result, valid
    return (yield from _shuffle(rewriter, asked, value, kind, place))


def shuffle_among(rewriter: Rewriter, asked: Shuffle, value: str, kind: str, place: Place) -> Pair:
    """Make a shuffle of the first `width` lanes; what others get is not defined.

    On NVIDIA GPUs they do not execute it: the instruction names the lanes that do. On AMD GPUs they exchange
    too, each `width` of them.
    """
    width = rewriter.constants.get(asked.width)
    if width == rewriter.form.subgroup_size:
        return (yield from shuffle(rewriter, asked, value, kind, place))
    lane = yield from lane_id(rewriter, place)
    if rewriter.form.is_amdgpu:
        if asked.mode == "xor" and width and width.bit_count() == 1:
            return (yield from _shuffle(rewriter, asked, value, kind, place))
        return (yield from _gathered(rewriter, asked, (value, kind), lane, place))
    inside = yield from compare(rewriter, "ult", (lane, asked.width), "i32", place)
    rewriter.count += 1
    made = f"%mo_{rewriter.count}"
    yield f'{place.indent}{made}:2 = "scf.if"({inside}) ({{'
    yield from _yielded(
        (yield from _narrow(rewriter, asked, (value, kind), lane, place.inside)),
        kind,
        place.inside,
    )
    yield f"{place.indent}}}, {{"
    false = yield from rewriter.value(
        '"arith.constant"() <{value = false}>', "() -> i1", place.inside
    )
    yield from _yielded((value, false), kind, place.inside)
    yield f"{place.indent}}}) : (i1) -> ({kind}, i1){place.location}"
    return f"{made}#0", f"{made}#1"


def _yielded(values: tuple[str, str], kind: str, place: Place) -> Iterator[str]:
    yield f'{place.indent}"scf.yield"({values[0]}, {values[1]}) : ({kind}, i1) -> (){place.location}'


def _narrow(
    rewriter: Rewriter, asked: Shuffle, typed: tuple[str, str], lane: str, place: Place
) -> Pair:
    if asked.mode != "up":
        return (yield from _shuffle(rewriter, asked, *typed, place))
    # The stock lowering for NVIDIA takes it from the wrong end of the subgroup.
    source, valid = yield from _source_lane(rewriter, asked, lane, place)
    result, _ = yield from _shuffle(rewriter, Shuffle("idx", source, asked.width), *typed, place)
    return result, valid


def _gathered(
    rewriter: Rewriter, asked: Shuffle, typed: tuple[str, str], lane: str, place: Place
) -> Pair:
    """Take the value from a lane that is computed here: the stock lowering for AMD needs powers of two."""
    within = yield from binary(rewriter, "remui", lane, asked.width, place)
    first = yield from binary(rewriter, "subi", lane, within, place)
    source, valid = yield from _source_lane(rewriter, asked, within, place)
    chosen = yield from binary(rewriter, "addi", first, source, place)
    size = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    result, _ = yield from _shuffle(rewriter, Shuffle("idx", chosen, size), *typed, place)
    return result, valid


def _shuffle(rewriter: Rewriter, asked: Shuffle, value: str, kind: str, place: Place) -> Pair:
    carrier = carrier_of(kind)
    bits = yield from carried(rewriter, value, kind, place)
    rewriter.count += 1
    made = f"%mo_{rewriter.count}"
    mode = f"<{{mode = #gpu<shuffle_mode {asked.mode}>}}>"
    operation = f'"gpu.shuffle"({bits}, {asked.offset}, {asked.width}) {mode}'
    yield named(f"{made}:2", operation, f"({carrier}, i32, i32) -> ({carrier}, i1)", place)
    result = yield from restored(rewriter, f"{made}#0", kind, place)
    return result, f"{made}#1"


def _source_lane(rewriter: Rewriter, asked: Shuffle, lane: str, place: Place) -> Pair:
    """Return the lane that the value comes from, the thread's own where that is none; and if there is one."""
    source = asked.offset
    if asked.mode != "idx":
        operation = _OF_LANE[asked.mode]
        source = yield from binary(rewriter, operation, lane, asked.offset, place)
    valid = yield from compare(rewriter, "ult", (source, asked.width), "i32", place)
    select = f'"arith.select"({valid}, {source}, {lane})'
    chosen = yield from rewriter.value(select, "(i1, i32, i32) -> i32", place)
    return chosen, valid


def carried(rewriter: Rewriter, value: str, kind: str, place: Place) -> Value:
    """Make the bits of a value a value of the type that `carrier_of` tells."""
    carrier, bits = carrier_of(kind), _bits_of(kind)
    if carrier == kind:
        return value
    if bits != kind:
        value = yield from convert(rewriter, "bitcast", value, (kind, bits), place)
    return (yield from convert(rewriter, "extui", value, (bits, carrier), place))


def restored(rewriter: Rewriter, value: str, kind: str, place: Place) -> Value:
    """Make the value of a type that `carried` made bits of."""
    carrier, bits = carrier_of(kind), _bits_of(kind)
    if carrier == kind:
        return value
    value = yield from convert(rewriter, "trunci", value, (carrier, bits), place)
    if bits != kind:
        value = yield from convert(rewriter, "bitcast", value, (bits, kind), place)
    return value


def _bits_of(kind: str) -> str:
    return "i16" if kind in _HALVES else kind


def lane_id(rewriter: Rewriter, place: Place) -> Value:
    """Make the number of the thread in its subgroup, as i32."""
    lane = yield from rewriter.value('"gpu.lane_id"()', "() -> index", place)
    return (yield from convert(rewriter, "index_cast", lane, ("index", "i32"), place))


def convert(
    rewriter: Rewriter, operation: str, value: str, kinds: tuple[str, str], place: Place
) -> Value:
    """Make a conversion of the arith dialect."""
    signature = f"({kinds[0]}) -> {kinds[1]}"
    return (yield from rewriter.value(f'"arith.{operation}"({value})', signature, place))


def binary(
    rewriter: Rewriter, operation: str, left: str, right: str, place: Place, kind: str = "i32"
) -> Value:
    """Make an operation of the arith dialect on two values of a type."""
    signature = f"({kind}, {kind}) -> {kind}"
    return (yield from rewriter.value(f'"arith.{operation}"({left}, {right})', signature, place))


# The numbers of arith's predicates.
_PREDICATES = {"eq": 0, "ne": 1, "slt": 2, "ult": 6, "uge": 9}


def compare(
    rewriter: Rewriter, predicate: str, values: tuple[str, str], kind: str, place: Place
) -> Value:
    """Make a comparison of two integers."""
    number = f"<{{predicate = {_PREDICATES[predicate]} : i64}}>"
    operation = f'"arith.cmpi"({values[0]}, {values[1]}) {number}'
    return (yield from rewriter.value(operation, f"({kind}, {kind}) -> i1", place))


def i32(rewriter: Rewriter, value: int, place: Place) -> Value:
    """Make a constant of type i32."""
    operation = f'"arith.constant"() <{{value = {value} : i32}}>'
    return (yield from rewriter.value(operation, "() -> i32", place))
