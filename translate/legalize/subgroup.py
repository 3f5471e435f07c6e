"""Expand subgroup operations to shuffles of types that every GPU supports."""

from __future__ import annotations

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.legalize.arith import binary, i32
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.legalize.shuffle import (
    Shuffle,
    carrier_of,
    check_lanes,
    lane_id,
    shuffle,
    shuffle_among,
)
from mlir_offload.translate.mlir.operation import Operation


def shuffle_lanes(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Legalize gpu.shuffle for all types of at most 64 bits and any width."""
    _check_exchanged(rewriter, operation)
    value, offset, width = operation.operands
    check_lanes(rewriter, operation, rewriter.constants.get(width.name))
    asked = Shuffle(operation.attribute("mode").enumerator, offset, width)
    rewriter.replace(operation, shuffle_among(rewriter, asked, value))


def rotate_lanes(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Legalize gpu.rotate: read the value of a later lane, modulo the width."""
    _check_exchanged(rewriter, operation)
    offset, width = (operation.attribute(name).integer or 0 for name in ("offset", "width"))
    check_lanes(rewriter, operation, width)
    lane, moving, among = lane_id(rewriter), i32(rewriter, offset), i32(rewriter, width)
    rewriter.constants[among.name] = width
    last = i32(rewriter, width - 1)
    source = binary(rewriter, "andi", binary(rewriter, "addi", lane, moving), last)
    asked = Shuffle("idx", source, among)
    rewriter.replace(operation, shuffle_among(rewriter, asked, operation.operands[0]))


def broadcast_lane(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Legalize gpu.subgroup_broadcast: read the value of one lane in all lanes."""
    _check_exchanged(rewriter, operation)
    value, lane = operation.operands
    size = i32(rewriter, rewriter.form.subgroup_size)
    result, _ = shuffle(rewriter, Shuffle("idx", lane, size), value)
    rewriter.replace(operation, (result,))


def _check_exchanged(rewriter: DeviceRewriter, operation: Operation) -> None:
    kind = operation.operand_types[0]
    if not carrier_of(kind):
        msg = f"{operation.name} on {kind} has no lowering"
        hint = "exchange numbers of at most 64 bits, one after the other"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))
