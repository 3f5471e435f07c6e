"""Operations over subgroups and blocks, rewritten to shuffles and to types that every GPU has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlir_offload.toolchain.errors import SourceError
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
    convert,
    i32,
    lane_id,
    shuffle,
    shuffle_among,
)
from mlir_offload.translate.mlir_text import Operation, split_signature

_REDUCTION = re.compile(r"#gpu<all_reduce_op (\w+)>")
_MODE = re.compile(r"#gpu<shuffle_mode (\w+)>")
_CLUSTER = re.compile(r"\bcluster_(size|stride) = (\d+)")
_ROTATION = re.compile(r"\b(offset|width) = (\d+)")
_VECTOR = re.compile(r"vector<(\d+)x(\w+)>")
_UNIFORM = re.compile(r"<\{[^}]*\buniform\b")
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
_ALL_REDUCED = frozenset({"i32", "i64", "f32", "f64"})
# What stands directly in a function of a gpu.module.
_BODY_INDENT = 6
_UNSIGNED = frozenset({"minui", "maxui"})


def is_redux(operation: Operation) -> bool:
    """Say whether the reduction may become one instruction of sm_80 and later."""
    attributes, operands, *_ = split_signature(operation.rest)
    is_whole = "cluster_size" not in attributes
    return operands == ["i32"] and _UNIFORM.search(attributes) is not None and is_whole


def _subgroup_reduce(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Combine over the subgroup by shuffles; the elements of a vector one after the other.

    The pass of LLVM for it is a test pass, and that of LLVM 19 knows subgroups of 32 threads only.
    """
    attributes, (kind,), *_ = split_signature(operation.rest)
    vector = _VECTOR.fullmatch(kind)
    element = vector[2] if vector else kind
    combine = _combining_operation(rewriter, attributes, element, place)
    (value,) = operation.operands
    if not vector:
        reduced = yield from _reduced(rewriter, (value, kind), combine, attributes, place)
        yield aliased(operation.results, ((reduced, kind),), place)
        return
    parts = []
    for index in range(int(vector[1])):
        extract = f'"vector.extract"({value}) <{{static_position = array<i64: {index}>}}>'
        part = yield from rewriter.value(extract, f"({kind}) -> {element}", place)
        parts.append((yield from _reduced(rewriter, (part, element), combine, attributes, place)))
    signature = f"({', '.join([element] * len(parts))}) -> {kind}"
    joined = f'"vector.from_elements"({", ".join(parts)})'
    yield aliased(
        operation.results, (((yield from rewriter.value(joined, signature, place)), kind),), place
    )


def _reduced(
    rewriter: Rewriter, typed: tuple[str, str], combine: str, attributes: str, place: Place
) -> Value:
    value, kind = typed
    cluster = {name: int(number) for name, number in _CLUSTER.findall(attributes)}
    stride = cluster.get("stride", 1)
    end = cluster.get("size", rewriter.form.subgroup_size) * stride
    width = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    while stride < end:
        distance = yield from i32(rewriter, stride, place)
        other, _ = yield from shuffle(rewriter, Shuffle("xor", distance, width), value, kind, place)
        value = yield from binary(rewriter, combine, value, other, place, kind)
        stride *= 2
    return value


def _combining_operation(rewriter: Rewriter, attributes: str, kind: str, place: Place) -> str:
    match = _REDUCTION.search(attributes)
    on_integers, on_floats = _COMBINING.get(match[1] if match else "", ("", ""))
    combine = on_integers if kind.startswith("i") else on_floats
    if combine and carrier_of(kind):
        return combine
    msg = f"gpu.subgroup_reduce {match[1] if match else ''} on {kind} has no lowering"
    hint = "reduce numbers of at most 64 bits, or vectors of these"
    raise SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))


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


def _all_reduce(
    rewriter: Rewriter, operation: Operation, lines: Sequence[str], place: Place
) -> Iterator[str]:
    """Reduce narrow numbers in wider ones: exact for integers, rounded once for halves."""
    if rewriter.repeats or operation.indent > _BODY_INDENT:
        # The lowering leaves the result in workgroup memory, which the next turn of a loop overwrites.
        yield f'{place.indent}"gpu.barrier"() : () -> (){place.location}'
    attributes, (kind,), *_ = split_signature(operation.rest)
    if kind in _ALL_REDUCED or len(lines) > 2:  # noqa: PLR2004 (a region that holds something)
        yield from lines
        return
    wide = carrier_of(kind) if kind.startswith("i") else "f32"
    match = _REDUCTION.search(attributes)
    extend = "extui" if match and match[1] in _UNSIGNED else "extsi"
    there, back = (extend, "trunci") if kind.startswith("i") else ("extf", "truncf")
    value = yield from convert(rewriter, there, operation.operands[0], (kind, wide), place)
    reduction = f'"gpu.all_reduce"({value}){attributes}'
    reduced = yield from rewriter.value(reduction, f"({wide}) -> {wide}", place)
    result = yield from convert(rewriter, back, reduced, (wide, kind), place)
    yield aliased(operation.results, ((result, kind),), place)


SUBGROUP_EXPANSIONS: dict[str, Expansion] = {
    "gpu.subgroup_reduce": _subgroup_reduce,
    "gpu.shuffle": _shuffle,
    "gpu.rotate": _rotate,
}
NVVM_SUBGROUP_EXPANSIONS: dict[str, Expansion] = {"gpu.subgroup_broadcast": _broadcast}
BLOCK_EXPANSIONS: dict[str, RegionExpansion] = {"gpu.all_reduce": _all_reduce}
