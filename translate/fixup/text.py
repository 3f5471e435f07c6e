"""Device operations that stock passes do not lower, rewritten in text before they run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from mlir_offload.translate.fixup.assertion import PRINTED_ASSERTION
from mlir_offload.translate.fixup.device_form import NVVM_FORM, SPIRV_FORM, DeviceForm
from mlir_offload.translate.fixup.lane_zero import execute_on_lane_zero
from mlir_offload.translate.fixup.math import is_on_bfloat, math_expansions, widened_bfloat
from mlir_offload.translate.fixup.matrix import elementwise
from mlir_offload.translate.fixup.reduction import is_redux, subgroup_redux
from mlir_offload.translate.fixup.rewriter import (
    BINARY,
    POINTER,
    Expansion,
    Place,
    RegionExpansion,
    Rewriter,
    index_constant,
    named,
    place_of,
)
from mlir_offload.translate.fixup.subgroup import (
    BLOCK_EXPANSIONS,
    NVVM_SUBGROUP_EXPANSIONS,
    SUBGROUP_EXPANSIONS,
)
from mlir_offload.translate.fixup.thread import linear_thread_id, threads_of_block
from mlir_offload.translate.mlir_text import (
    Locations,
    Operation,
    parse_operation,
    split_signature,
    string_attribute,
)

_NEEDLE = re.compile(
    r'"(?:gpu\.(?:subgroup_(?:size|id|reduce|broadcast|mma_elementwise)|num_subgroups|global_id|shuffle|rotate|all_reduce'
    r'|warp_execute_on_lane_0|printf)|cf\.assert|math\.\w+)"\('
)
_NARROW = {"i1": "extui", "i8": "extsi", "i16": "extsi"}
_ASSERTFAIL_TYPES = f"{POINTER}, {POINTER}, i32, {POINTER}, i64"
_ASSERTFAIL = "__assertfail"
_ASSERTFAIL_DECLARED = (
    f'    llvm.func @__assertfail({_ASSERTFAIL_TYPES}) attributes {{passthrough = ["noreturn"]}}'
)


def expand_device_operations(
    lines: Sequence[str],
    *,
    locations: Locations,
    faults: frozenset[str],
    form: DeviceForm = NVVM_FORM,
) -> tuple[str, ...]:
    """Return the lines of a `gpu.module` without the operations that have no lowering in a form.

    Subgroups are numbered along x, then y, then z, as PTX numbers them. For NVIDIA `cf.assert` is
    expanded where the release lowers it wrongly (`assert_outside_module`).
    """
    if not any(_NEEDLE.search(line) for line in lines):
        return tuple(lines)
    rewriter = Rewriter(locations, form)
    body = list(_expanded(rewriter, lines, _expansions(lines, form, faults)))
    if any('sym_name = "__assertfail"' in line for line in lines):
        rewriter.globals.pop(_ASSERTFAIL, None)
    body[1:1] = rewriter.globals.values()
    return tuple(body)


def _expanded(
    rewriter: Rewriter, lines: Sequence[str], expansions: Mapping[str, Expansion]
) -> Iterator[str]:
    index = 0
    while index < len(lines):
        line = lines[index]
        operation = parse_operation(line) if _NEEDLE.search(line) else None
        last = index
        rewriter.note_definition(line)
        if operation is None:
            yield line
        elif operation.name in _REGION_EXPANSIONS:
            last = _last_line(lines, index, operation.indent)
            inner = _expanded(rewriter, lines[index + 1 : last], expansions)
            whole = replace(operation, rest=operation.rest + lines[last].strip())
            expand_region = _REGION_EXPANSIONS[operation.name]
            yield from expand_region(rewriter, whole, (line, *inner, lines[last]), place_of(whole))
        elif rewriter.form.name == SPIRV_FORM.name and is_on_bfloat(operation):
            yield from widened_bfloat(rewriter, operation, place_of(operation))
        elif operation.name in expansions:
            yield from expansions[operation.name](rewriter, operation, place_of(operation))
        else:
            yield line
        index = last + 1


def _last_line(lines: Sequence[str], first: int, indent: int) -> int:
    close = " " * indent + "})"
    return next(i for i in range(first + 1, len(lines)) if lines[i].startswith(close))


def _expansions(
    lines: Sequence[str], form: DeviceForm, faults: frozenset[str]
) -> Mapping[str, Expansion]:
    expansions = {**_EXPANSIONS, **SUBGROUP_EXPANSIONS, **math_expansions(form)}
    if not form.has_assertions:
        expansions |= PRINTED_ASSERTION
    if form.is_amdgpu:
        return expansions
    expansions |= {**NVVM_SUBGROUP_EXPANSIONS, "gpu.subgroup_mma_elementwise": elementwise}
    if not form.has_assertions:
        return expansions
    if "assert_outside_module" in faults:
        expansions["cf.assert"] = _expand_assert
    reductions = [parse_operation(line) for line in lines if '"gpu.subgroup_reduce"(' in line]
    if all(operation is None or is_redux(operation) for operation in reductions):
        expansions["gpu.subgroup_reduce"] = subgroup_redux
    return expansions


def _subgroup_size(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    size = index_constant(rewriter.form.subgroup_size)
    yield named(operation.results, size, "() -> index", place)


def _subgroup_id(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    linear = yield from linear_thread_id(rewriter, place)
    size = yield from rewriter.index(rewriter.form.subgroup_size, place)
    yield named(operation.results, f'"arith.divui"({linear}, {size})', BINARY, place)


def _num_subgroups(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    threads = yield from threads_of_block(rewriter, place)
    size = yield from rewriter.index(rewriter.form.subgroup_size, place)
    yield named(operation.results, f'"arith.ceildivui"({threads}, {size})', BINARY, place)


def _global_id(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    match = re.search(r"#gpu<dim ([xyz])>", operation.rest)
    dimension = match[1] if match else "x"
    block = yield from rewriter.identifier("block_id", dimension, place)
    extent = yield from rewriter.identifier("block_dim", dimension, place)
    thread = yield from rewriter.identifier("thread_id", dimension, place)
    start = yield from rewriter.value(f'"arith.muli"({block}, {extent})', BINARY, place)
    yield named(operation.results, f'"arith.addi"({start}, {thread})', BINARY, place)


def _expand_assert(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Call `__assertfail` where the condition is false, as later releases lower the operation."""
    message = string_attribute(operation.rest, "msg") or ""
    file, line = rewriter.file_and_line(place)
    function = rewriter.function_name(place)
    true = yield from rewriter.value('"arith.constant"() <{value = true}>', "() -> i1", place)
    negated = f'"arith.xori"({operation.operands[0]}, {true})'
    failed = yield from rewriter.value(negated, "(i1, i1) -> i1", place)
    yield f'{place.indent}"scf.if"({failed}) ({{'
    inner = place.inside
    texts = [rewriter.message_global(text, place) for text in (message, file, function)]
    rewriter.globals[_ASSERTFAIL] = _ASSERTFAIL_DECLARED
    pointers = []
    for name in texts:
        address = f'"llvm.mlir.addressof"() <{{global_name = @{name}}}>'
        pointers.append((yield from rewriter.value(address, f"() -> {POINTER}", inner)))
    number = yield from rewriter.value(_constant(line, "i32"), "() -> i32", inner)
    one = yield from rewriter.value(_constant(1, "i64"), "() -> i64", inner)
    arguments = f"{pointers[0]}, {pointers[1]}, {number}, {pointers[2]}, {one}"
    # The custom form: the properties of llvm.call differ between releases.
    yield f"{inner.indent}llvm.call @__assertfail({arguments}) : ({_ASSERTFAIL_TYPES}) -> (){inner.location}"
    yield f'{inner.indent}"scf.yield"() : () -> (){inner.location}'
    yield f"{place.indent}}}, {{"
    yield f"{place.indent}}}) : (i1) -> (){place.location}"


def _printf(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Widen integers to the 32 bits that printf takes for them at least, as C does."""
    attributes, kinds, *_ = split_signature(operation.rest)
    operands = list(operation.operands)
    for number, kind in enumerate(kinds):
        if kind in _NARROW:
            widen = f'"arith.{_NARROW[kind]}"({operands[number]})'
            operands[number] = yield from rewriter.value(widen, f"({kind}) -> i32", place)
            kinds[number] = "i32"
    printed = f'"gpu.printf"({", ".join(operands)}){attributes}'
    yield f"{place.indent}{printed} : ({', '.join(kinds)}) -> (){place.location}"


def _constant(value: int, kind: str) -> str:
    return f'"llvm.mlir.constant"() <{{value = {value} : {kind}}}>'


_EXPANSIONS: dict[str, Expansion] = {
    "gpu.printf": _printf,
    "gpu.subgroup_size": _subgroup_size,
    "gpu.subgroup_id": _subgroup_id,
    "gpu.num_subgroups": _num_subgroups,
    "gpu.global_id": _global_id,
}
_REGION_EXPANSIONS: dict[str, RegionExpansion] = {
    **BLOCK_EXPANSIONS,
    "gpu.warp_execute_on_lane_0": execute_on_lane_zero,
}
