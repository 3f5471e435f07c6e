"""Operations over subgroups and blocks, rewritten to shuffles and to types that every GPU has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.fixup.block_reduction import all_reduce
from mlir_offload.translate.fixup.reduction import subgroup_reduce
from mlir_offload.translate.fixup.rewriter import (
    Expansion,
    Place,
    RegionExpansion,
    Rewriter,
    Value,
    aliased,
)
from mlir_offload.translate.fixup.shuffle import (
    Shuffle,
    binary,
    carrier_of,
    i32,
    lane_id,
    shuffle,
    shuffle_among,
)
from mlir_offload.translate.mlir_text import Operation, split_signature

_MODE = re.compile(r"#gpu<shuffle_mode (\w+)>")
_ROTATION = re.compile(r"\b(offset|width) = (\d+)")


def _shuffle(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    attributes, (kind, *_), *_ = split_signature(operation.rest)
    value, offset, width = operation.operands
    match = _MODE.search(attributes)
    _check_exchanged(rewriter, operation, kind, place)
    asked = Shuffle(match[1] if match else "xor", offset, width)
    result, valid = yield from shuffle_among(rewriter, asked, value, kind, place)
    yield aliased(operation.results, ((result, kind), (valid, "i1")), place)


def _rotate(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Take the value from a lane further on, in a ring of the first lanes."""
    attributes, (kind,), *_ = split_signature(operation.rest)
    _check_exchanged(rewriter, operation, kind, place)
    numbers = {name: int(number) for name, number in _ROTATION.findall(attributes)}
    lane = yield from lane_id(rewriter, place)
    offset = yield from i32(rewriter, numbers["offset"], place)
    width = yield from i32(rewriter, numbers["width"], place)
    rewriter.constants[width] = numbers["width"]
    last = yield from i32(rewriter, numbers["width"] - 1, place)
    moved = yield from binary(rewriter, "addi", lane, offset, place)
    source = yield from binary(rewriter, "andi", moved, last, place)
    asked = Shuffle("idx", source, width)
    result, valid = yield from shuffle_among(rewriter, asked, operation.operands[0], kind, place)
    yield aliased(operation.results, ((result, kind), (valid, "i1")), place)


def _broadcast(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    _, (kind, *_), *_ = split_signature(operation.rest)
    _check_exchanged(rewriter, operation, kind, place)
    value, lane = operation.operands
    result = yield from _from_lane(rewriter, (value, kind), lane, place)
    yield aliased(operation.results, ((result, kind),), place)


def _from_lane(rewriter: Rewriter, typed: tuple[str, str], lane: str, place: Place) -> Value:
    size = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    result, _ = yield from shuffle(rewriter, Shuffle("idx", lane, size), *typed, place)
    return result


def _check_exchanged(rewriter: Rewriter, operation: Operation, kind: str, place: Place) -> None:
    if not carrier_of(kind):
        msg = f"{operation.name} on {kind} has no lowering"
        hint = "exchange numbers of at most 64 bits, one after the other"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))


SUBGROUP_EXPANSIONS: dict[str, Expansion] = {
    "gpu.subgroup_reduce": subgroup_reduce,
    "gpu.shuffle": _shuffle,
    "gpu.rotate": _rotate,
}
NVVM_SUBGROUP_EXPANSIONS: dict[str, Expansion] = {"gpu.subgroup_broadcast": _broadcast}
BLOCK_EXPANSIONS: dict[str, RegionExpansion] = {"gpu.all_reduce": all_reduce}
