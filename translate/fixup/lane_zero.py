"""gpu.warp_execute_on_lane_0: a condition around its region, and what it yields for every lane."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.fixup.rewriter import Place, Rewriter, aliased
from mlir_offload.translate.fixup.shuffle import (
    Shuffle,
    binary,
    carrier_of,
    compare,
    i32,
    lane_id,
    shuffle,
)
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import Operation, parse_operation, split_signature

Values = Generator[str, None, list[str]]
_SIZE = re.compile(r"\bwarp_size = (\d+)")
_BLOCK = re.compile(r" *\^\w+\((.*)\):")
_ARGUMENT = re.compile(r"(%[\w$.-]+): (.*?)(?: loc\(.*\))?")
_VALUE = re.compile(r"%[\w$.-]+")


@dataclass(frozen=True, slots=True)
class _Region:
    """The one block of the operation: what it takes, what it does and what it yields."""

    arguments: dict[str, str]
    lines: Sequence[str]
    yielded: tuple[str, ...]
    types: list[str]


def execute_on_lane_zero(
    rewriter: Rewriter, operation: Operation, lines: Sequence[str], place: Place
) -> Iterator[str]:
    """Let the first lane execute the region; the others get what it yields.

    Raises SourceError where operands or results are distributed over the lanes: that is the
    business of passes that know how, which must run before.
    """
    attributes, (_, *given), results, _ = split_signature(operation.rest)
    region = _read_region(lines[1:-1])
    is_shared = all(map(carrier_of, results)) and region.types == results
    match = _SIZE.search(attributes)
    size = int(match[1]) if match else rewriter.form.subgroup_size
    if list(region.arguments.values()) != given or not is_shared:
        raise _distributed(rewriter, place)
    if size > rewriter.form.subgroup_size:
        raise _too_wide(rewriter, size, place)
    zero = yield from rewriter.index(0, place)
    first = yield from compare(rewriter, "eq", (operation.operands[0], zero), "index", place)
    renamed = dict(zip(region.arguments, operation.operands[1:], strict=True))
    values = yield from _condition(rewriter, _renamed(region, renamed), first, place)
    if values:
        yield from _share(rewriter, operation, (values, results), size, place)


def _condition(rewriter: Rewriter, region: _Region, condition: str, place: Place) -> Values:
    """Make the region that of an `if`; return its results, which are 0 in other lanes."""
    rewriter.count += 1
    made, types = f"%mo_{rewriter.count}", ", ".join(region.types)
    results = f"{made}:{len(region.types)} = " if region.types else ""
    yield f'{place.indent}{results}"scf.if"({condition}) ({{'
    yield from region.lines
    yield _yield_line(region.yielded, types, place)
    yield f"{place.indent}}}, {{"
    others = []
    for kind in region.types:
        zero = "0" if kind.startswith("i") else "0.0"
        constant = f'"arith.constant"() <{{value = {zero} : {kind}}}>'
        others.append((yield from rewriter.value(constant, f"() -> {kind}", place.inside)))
    yield _yield_line(others, types, place)
    yield f"{place.indent}}}) : (i1) -> ({types}){place.location}"
    return [f"{made}#{index}" for index in range(len(region.types))]


def _yield_line(values: Sequence[str], types: str, place: Place) -> str:
    operation = f'"scf.yield"({", ".join(values)}) : ({types}) -> ()'
    return f"{place.inside.indent}{operation}{place.location}"


def _share(
    rewriter: Rewriter,
    operation: Operation,
    typed: tuple[Sequence[str], Sequence[str]],
    size: int,
    place: Place,
) -> Iterator[str]:
    """Give every lane what the first one of its group has."""
    lane = yield from lane_id(rewriter, place)
    mask = yield from i32(rewriter, -size, place)
    first = yield from binary(rewriter, "andi", lane, mask, place)
    width = yield from i32(rewriter, rewriter.form.subgroup_size, place)
    shared = []
    for value, kind in zip(*typed, strict=True):
        asked = Shuffle("idx", first, width)
        result, _ = yield from shuffle(rewriter, asked, value, kind, place)
        shared.append((result, kind))
    yield aliased(operation.results, shared, place)


def _read_region(lines: Sequence[str]) -> _Region:
    arguments: dict[str, str] = {}
    block = _BLOCK.match(lines[0]) if lines else None
    body = list(lines[1:] if block else lines)
    for text in MLIR.split_list(block[1]) if block else ():
        argument = _ARGUMENT.fullmatch(text)
        if argument:
            arguments[argument[1]] = argument[2]
    last = parse_operation(body[-1]) if body else None
    if last is None or last.name != "gpu.yield":
        return _Region(arguments, body, (), [])
    return _Region(arguments, body[:-1], last.operands, split_signature(last.rest)[1])


def _renamed(region: _Region, names: dict[str, str]) -> _Region:
    def rename(text: str) -> str:
        return MLIR.replace(_VALUE, lambda match: names.get(match[0], match[0]), text)

    if not names:
        return region
    lines = [rename(line) for line in region.lines]
    return _Region(region.arguments, lines, tuple(map(rename, region.yielded)), region.types)


def _distributed(rewriter: Rewriter, place: Place) -> SourceError:
    msg = (
        "gpu.warp_execute_on_lane_0 with values that are distributed over the lanes has no lowering"
    )
    hint = (
        "distribute them before, for example with the passes of vector distribution, or use memory"
    )
    return SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))


def _too_wide(rewriter: Rewriter, size: int, place: Place) -> SourceError:
    threads = rewriter.form.subgroup_size
    msg = f"gpu.warp_execute_on_lane_0 for {size} threads, where a subgroup has {threads}"
    hint = "write the size of the GPU's subgroup in brackets, or compile for another GPU"
    return SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))
