"""Exchange values between the lanes of a subgroup."""

from __future__ import annotations

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.legalize.arith import (
    binary,
    boolean,
    compare,
    convert,
    either,
    i32,
    select,
)
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import integer_width

Pair = tuple[Value, Value]
_EXCHANGED = frozenset({"i32", "i64", "f32", "f64"})
_HALVES = frozenset({"f16", "bf16"})
_WORD, _LONG = 32, 64
# The operation that computes the source lane from the own lane and the offset.
_OF_LANE = {"xor": "xori", "up": "subi", "down": "addi"}


class Shuffle(Struct, frozen=True):
    """The parameters of a shuffle. `offset` and `width` are values of type i32."""

    mode: str
    offset: Value
    width: Value


def carrier_of(kind: str) -> str:
    """Return the type in which values of a type are exchanged, an empty string if they cannot be."""
    if kind in _EXCHANGED:
        return kind
    if kind in _HALVES:
        return "i32"
    bits = integer_width(kind) or _LONG
    return "i32" if bits < _WORD else "i64" if bits < _LONG else ""


def check_lanes(rewriter: DeviceRewriter, operation: Operation, count: int | None) -> None:
    """Raise SourceError for an operation on more lanes than a subgroup has. None is an unknown number.

    The instructions of GPUs wrap around, so that the result would be wrong.
    """
    size = rewriter.form.subgroup_size
    if count is not None and not 0 < count <= size:
        msg = f"{operation.name} among {count} lanes, but subgroups of this target have {size} threads"
        hint = f"ask for 1 to {size} lanes"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))


def shuffle(rewriter: DeviceRewriter, asked: Shuffle, value: Value) -> Pair:
    """Create a shuffle of the whole subgroup. Return the value, and whether the source lane exists."""
    if rewriter.form.is_amdgpu and asked.mode in {"up", "down"}:
        source, valid = _source_lane(rewriter, asked, lane_id(rewriter))
        result, _ = _shuffle(rewriter, Shuffle("idx", source, asked.width), value)
        return result, valid
    return _shuffle(rewriter, asked, value)


def shuffle_among(rewriter: DeviceRewriter, asked: Shuffle, value: Value) -> Pair:
    """Create a shuffle of the first `width` lanes. The results of other lanes are undefined.

    On NVIDIA GPUs, the mask of the instruction excludes the other lanes. On AMD GPUs, they take part in
    groups of `width` lanes.
    """
    width = rewriter.constants.get(asked.width.name)
    if width == rewriter.form.subgroup_size:
        return shuffle(rewriter, asked, value)
    lane = lane_id(rewriter)
    if rewriter.form.is_amdgpu:
        if asked.mode == "xor" and width and width.bit_count() == 1:
            return _shuffle(rewriter, asked, value)
        return _gathered(rewriter, asked, value, lane)
    inside = compare(rewriter, "ult", lane, asked.width)
    result, valid = either(
        rewriter,
        inside,
        (
            lambda: _narrow(rewriter, asked, value, lane),
            lambda: (value, boolean(rewriter, is_true=False)),
        ),
    )
    return result, valid


def _narrow(rewriter: DeviceRewriter, asked: Shuffle, value: Value, lane: Value) -> Pair:
    if asked.mode != "up":
        return _shuffle(rewriter, asked, value)
    # The upstream lowering for NVIDIA GPUs uses the wrong end of the subgroup.
    source, valid = _source_lane(rewriter, asked, lane)
    result, _ = _shuffle(rewriter, Shuffle("idx", source, asked.width), value)
    return result, valid


def _gathered(rewriter: DeviceRewriter, asked: Shuffle, value: Value, lane: Value) -> Pair:
    """Shuffle from a computed lane, because the upstream lowering for AMD GPUs requires a power of two."""
    within = binary(rewriter, "remui", lane, asked.width)
    first = binary(rewriter, "subi", lane, within)
    source, valid = _source_lane(rewriter, asked, within)
    chosen = binary(rewriter, "addi", first, source)
    size = i32(rewriter, rewriter.form.subgroup_size)
    result, _ = _shuffle(rewriter, Shuffle("idx", chosen, size), value)
    return result, valid


def _shuffle(rewriter: DeviceRewriter, asked: Shuffle, value: Value) -> Pair:
    bits = carried(rewriter, value)
    mode = {"mode": f"#gpu<shuffle_mode {asked.mode}>"}
    operands = (bits, asked.offset, asked.width)
    result, valid = rewriter.create("gpu.shuffle", operands, (bits.type, "i1"), mode).results
    return restored(rewriter, result, value.type), valid


def _source_lane(rewriter: DeviceRewriter, asked: Shuffle, lane: Value) -> Pair:
    """Return the source lane, or the own lane if it does not exist, and whether it exists."""
    source = asked.offset
    if asked.mode != "idx":
        source = binary(rewriter, _OF_LANE[asked.mode], lane, asked.offset)
    valid = compare(rewriter, "ult", source, asked.width)
    return select(rewriter, valid, source, lane), valid


def carried(rewriter: DeviceRewriter, value: Value) -> Value:
    """Convert the bits of a value to the type `carrier_of` returns."""
    carrier, bits = carrier_of(value.type), _bits_of(value.type)
    if carrier == value.type:
        return value
    if bits != value.type:
        value = convert(rewriter, "bitcast", value, bits)
    return convert(rewriter, "extui", value, carrier)


def restored(rewriter: DeviceRewriter, value: Value, kind: str) -> Value:
    """Convert the result of `carried` back to a value of type `kind`."""
    bits = _bits_of(kind)
    if value.type == kind:
        return value
    value = convert(rewriter, "trunci", value, bits)
    return value if bits == kind else convert(rewriter, "bitcast", value, kind)


def _bits_of(kind: str) -> str:
    return "i16" if kind in _HALVES else kind


def lane_id(rewriter: DeviceRewriter) -> Value:
    """Create the lane ID, as i32."""
    return convert(rewriter, "index_cast", rewriter.value("gpu.lane_id", (), "index"), "i32")
