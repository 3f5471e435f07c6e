"""Values exchanged within a subgroup, in the types and modes that the lowering of each GPU has."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from mlir_offload.translate.fixup.rewriter import Place, Rewriter, Value, named

Pair = Generator[str, None, tuple[str, str]]
_INTEGER = re.compile(r"i(\d+)")
_EXCHANGED = frozenset({"i32", "i64", "f32", "f64"})
_HALVES = frozenset({"f16", "bf16"})
_WORD, _LONG = 32, 64


@dataclass(frozen=True, slots=True)
class Shuffle:
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
    return (yield from _exchanged(rewriter, asked, value, kind, place))


def shuffle_among(rewriter: Rewriter, asked: Shuffle, value: str, kind: str, place: Place) -> Pair:
    """Make a shuffle of the first `width` lanes; other lanes keep their value and have no source.

    They do not execute it: the instruction of NVIDIA GPUs names the lanes that do.
    """
    if rewriter.constants.get(asked.width) == rewriter.form.subgroup_size:
        return (yield from shuffle(rewriter, asked, value, kind, place))
    lane = yield from lane_id(rewriter, place)
    inside = yield from compare(rewriter, "ult", (lane, asked.width), "i32", place)
    rewriter.count += 1
    made = f"%mo_{rewriter.count}"
    yield f'{place.indent}{made}:2 = "scf.if"({inside}) ({{'
    yield from _yielded(
        (yield from _exchanged(rewriter, asked, value, kind, place.inside, is_narrow=True)),
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


def _exchanged(
    rewriter: Rewriter,
    asked: Shuffle,
    value: str,
    kind: str,
    place: Place,
    *,
    is_narrow: bool = False,
) -> Pair:
    # The stock lowering for NVIDIA takes `up` of fewer lanes from the wrong end of the subgroup.
    if asked.mode == "up" and is_narrow and not rewriter.form.is_amdgpu:
        lane, valid = yield from _source_lane(rewriter, asked, place)
        source = Shuffle("idx", lane, asked.width)
        result, _ = yield from _shuffle(rewriter, source, value, kind, place)
        return result, valid
    if rewriter.form.is_amdgpu and asked.mode in {"up", "down"}:
        lane, valid = yield from _source_lane(rewriter, asked, place)
        size = yield from i32(rewriter, rewriter.form.subgroup_size, place)
        result, _ = yield from _shuffle(rewriter, Shuffle("idx", lane, size), value, kind, place)
        return result, valid
    return (yield from _shuffle(rewriter, asked, value, kind, place))


def _shuffle(rewriter: Rewriter, asked: Shuffle, value: str, kind: str, place: Place) -> Pair:
    carrier = carrier_of(kind)
    carried = yield from _carried(rewriter, value, kind, place)
    rewriter.count += 1
    made = f"%mo_{rewriter.count}"
    mode = f"<{{mode = #gpu<shuffle_mode {asked.mode}>}}>"
    operation = f'"gpu.shuffle"({carried}, {asked.offset}, {asked.width}) {mode}'
    yield named(f"{made}:2", operation, f"({carrier}, i32, i32) -> ({carrier}, i1)", place)
    result = yield from _restored(rewriter, f"{made}#0", kind, place)
    return result, f"{made}#1"


def _source_lane(rewriter: Rewriter, asked: Shuffle, place: Place) -> Pair:
    """Return the lane that `up` or `down` takes the value from, its own where that is none."""
    lane = yield from lane_id(rewriter, place)
    one = yield from i32(rewriter, 1, place)
    mask = yield from binary(rewriter, "subi", asked.width, one, place)
    within = yield from binary(rewriter, "andi", lane, mask, place)
    if asked.mode == "up":
        source = yield from binary(rewriter, "subi", lane, asked.offset, place)
        valid = yield from compare(rewriter, "uge", (within, asked.offset), "i32", place)
    else:
        source = yield from binary(rewriter, "addi", lane, asked.offset, place)
        moved = yield from binary(rewriter, "addi", within, asked.offset, place)
        valid = yield from compare(rewriter, "ult", (moved, asked.width), "i32", place)
    select = f'"arith.select"({valid}, {source}, {lane})'
    chosen = yield from rewriter.value(select, "(i1, i32, i32) -> i32", place)
    return chosen, valid


def _carried(rewriter: Rewriter, value: str, kind: str, place: Place) -> Value:
    carrier, bits = carrier_of(kind), _bits_of(kind)
    if carrier == kind:
        return value
    if bits != kind:
        value = yield from convert(rewriter, "bitcast", value, (kind, bits), place)
    return (yield from convert(rewriter, "extui", value, (bits, carrier), place))


def _restored(rewriter: Rewriter, value: str, kind: str, place: Place) -> Value:
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
_PREDICATES = {"eq": 0, "ult": 6, "uge": 9}


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
