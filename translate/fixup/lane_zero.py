"""gpu.warp_execute_on_lane_0: a condition around its region, and what it yields for every lane."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.fixup.distribution import (
    element_types,
    elements,
    gather,
    is_distributed,
    is_shared,
    joined,
    make_group,
    scatter,
    share,
)
from mlir_offload.translate.fixup.rewriter import BINARY, Place, Rewriter, aliased
from mlir_offload.translate.fixup.shuffle import compare
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import Operation, parse_operation, split_signature

Values = Generator[str, None, list[str]]
_SIZE = re.compile(r"\bwarp_size = (\d+)")
_BLOCK = re.compile(r" *\^\w+\((.*)\):")
_ARGUMENT = re.compile(r"(%[\w$.-]+): (.*?)(?: loc\(.*\))?")
_VALUE = re.compile(r"%[\w$.-]+")


class _Region(Struct, frozen=True):
    """The one block of the operation: what it takes, what it does and what it yields."""

    arguments: dict[str, str]
    lines: Sequence[str]
    yielded: tuple[str, ...]
    types: list[str]


def execute_on_lane_zero(
    rewriter: Rewriter, operation: Operation, lines: Sequence[str], place: Place
) -> Iterator[str]:
    """Let the first lane execute the region; the others get what it yields.

    It gets the vectors whose parts the lanes hold, and each lane gets its part of a vector that is
    distributed. Raises SourceError for types that are not exchanged.
    """
    attributes, (_, *given), results, _ = split_signature(operation.rest)
    region = _read_region(lines[1:-1])
    match = _SIZE.search(attributes)
    size = int(match[1]) if match else rewriter.form.subgroup_size
    taken = list(region.arguments.values())
    parts = [*zip(given, taken, strict=True), *zip(results, region.types, strict=True)]
    if not all(is_distributed(*pair, size) for pair in parts if pair[0] != pair[1]) or not all(
        is_shared(kind) for kind in results
    ):
        raise _distributed(rewriter, place)
    if size > rewriter.form.subgroup_size:
        raise _too_wide(rewriter, size, place)
    group = yield from make_group(rewriter, size, place)
    gathered: dict[str, list[str]] = {}
    renamed: dict[str, str] = {}
    for name, value, part in zip(region.arguments, operation.operands[1:], given, strict=True):
        if part == region.arguments[name]:
            renamed[name] = value
        else:
            gathered[name] = yield from gather(rewriter, group, value, part, place)
    zero = yield from rewriter.index(0, place)
    lane = operation.operands[0]
    if size < rewriter.form.subgroup_size:
        # Each group has a first lane.
        lanes = yield from rewriter.index(size, place)
        lane = yield from rewriter.value(f'"arith.remui"({lane}, {lanes})', BINARY, place)
    first = yield from compare(rewriter, "eq", (lane, zero), "index", place)
    values = yield from _condition(rewriter, _renamed(region, renamed), gathered, first, place)
    made = []
    for whole, part in zip(region.types, results, strict=True):
        own = [values.pop(0) for _ in element_types(whole)]
        if part == whole:
            own = yield from share(rewriter, group, own, whole, place)
        else:
            own = yield from scatter(rewriter, group, own, part, place)
        made.append(((yield from joined(rewriter, own, part, place)), part))
    if made:
        yield aliased(operation.results, made, place)


def _condition(
    rewriter: Rewriter,
    region: _Region,
    gathered: Mapping[str, Sequence[str]],
    condition: str,
    place: Place,
) -> Values:
    """Make the region that of an `if`; return the elements of its results, 0 in other lanes.

    SPIR-V has no vectors of many elements as values of a branch.
    """
    rewriter.count += 1
    made, inner = f"%mo_{rewriter.count}", place.inside
    kinds = [element for kind in region.types for element in element_types(kind)]
    results = f"{made}:{len(kinds)} = " if kinds else ""
    yield f'{place.indent}{results}"scf.if"({condition}) ({{'
    whole = {}
    for name, parts in gathered.items():
        whole[name] = yield from joined(rewriter, parts, region.arguments[name], inner)
    region = _renamed(region, whole)
    yield from region.lines
    yielded: list[str] = []
    for value, kind in zip(region.yielded, region.types, strict=True):
        yielded += yield from elements(rewriter, value, kind, inner)
    yield _yield_line(yielded, ", ".join(kinds), place)
    yield f"{place.indent}}}, {{"
    others = []
    for kind in kinds:
        zero = "0" if kind.startswith("i") else "0.0"
        constant = f'"arith.constant"() <{{value = {zero} : {kind}}}>'
        others.append((yield from rewriter.value(constant, f"() -> {kind}", inner)))
    yield _yield_line(others, ", ".join(kinds), place)
    yield f"{place.indent}}}) : (i1) -> ({', '.join(kinds)}){place.location}"
    return [f"{made}#{index}" for index in range(len(kinds))]


def _yield_line(values: Sequence[str], types: str, place: Place) -> str:
    operation = f'"scf.yield"({", ".join(values)}) : ({types}) -> ()'
    return f"{place.inside.indent}{operation}{place.location}"


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


def _renamed(region: _Region, names: Mapping[str, str]) -> _Region:
    def rename(text: str) -> str:
        return MLIR.replace(_VALUE, lambda match: names.get(match[0], match[0]), text)

    if not names:
        return region
    lines = [rename(line) for line in region.lines]
    return _Region(region.arguments, lines, tuple(map(rename, region.yielded)), region.types)


def _distributed(rewriter: Rewriter, place: Place) -> SourceError:
    msg = "gpu.warp_execute_on_lane_0 distributes values whose type has no lowering"
    hint = "use numbers, or vectors of one dimension of them, with an equal part for each lane"
    return SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))


def _too_wide(rewriter: Rewriter, size: int, place: Place) -> SourceError:
    threads = rewriter.form.subgroup_size
    msg = f"gpu.warp_execute_on_lane_0 for {size} threads, where a subgroup has {threads}"
    hint = "write the size of the GPU's subgroup in brackets, or compile for another GPU"
    return SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))
