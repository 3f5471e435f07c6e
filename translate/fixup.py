"""Device operations that stock passes do not lower, rewritten in text before they run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mlir_offload.translate.device_form import NVVM_FORM, DeviceForm
from mlir_offload.translate.fixup_amdgpu import AMDGPU_EXPANSIONS
from mlir_offload.translate.mlir_text import (
    Locations,
    Operation,
    parse_operation,
    string_attribute,
)
from mlir_offload.translate.rewriter import (
    BINARY,
    POINTER,
    Expansion,
    Place,
    Rewriter,
    Value,
    index_constant,
    named,
    place_of,
)

_NEEDLE = re.compile(
    r'"(?:gpu\.(?:subgroup_size|num_subgroups|subgroup_id|global_id|subgroup_reduce)|cf\.assert)"\('
)
_UNKNOWN = "(unknown)"
_ASSERTFAIL_TYPES = f"{POINTER}, {POINTER}, i32, {POINTER}, i64"
_ASSERTFAIL = (
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
    expansions = _expansions(form, faults)
    body: list[str] = []
    for line in lines:
        operation = parse_operation(line) if _NEEDLE.search(line) else None
        expand = expansions.get(operation.name) if operation else None
        if operation is None or expand is None:
            body.append(line)
        else:
            body.extend(expand(rewriter, operation, place_of(operation)))
    if rewriter.globals:
        declared = any('sym_name = "__assertfail"' in line for line in lines)
        body[1:1] = [*rewriter.globals, *([] if declared else [_ASSERTFAIL])]
    return tuple(body)


def _expansions(form: DeviceForm, faults: frozenset[str]) -> Mapping[str, Expansion]:
    if form.is_amdgpu:
        return {**_EXPANSIONS, **AMDGPU_EXPANSIONS}
    if "assert_outside_module" in faults:
        return {**_EXPANSIONS, "cf.assert": _expand_assert}
    return _EXPANSIONS


def _subgroup_size(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    size = index_constant(rewriter.form.subgroup_size)
    yield named(operation.results, size, "() -> index", place)


def _subgroup_id(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    linear = yield from _linear_thread_id(rewriter, place)
    size = yield from rewriter.index(rewriter.form.subgroup_size, place)
    yield named(operation.results, f'"arith.divui"({linear}, {size})', BINARY, place)


def _num_subgroups(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    x, y, z = yield from rewriter.dimensions("block_dim", place)
    area = yield from rewriter.value(f'"arith.muli"({x}, {y})', BINARY, place)
    threads = yield from rewriter.value(f'"arith.muli"({area}, {z})', BINARY, place)
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


def _linear_thread_id(rewriter: Rewriter, place: Place) -> Value:
    x, y, z = yield from rewriter.dimensions("thread_id", place)
    width = yield from rewriter.identifier("block_dim", "x", place)
    height = yield from rewriter.identifier("block_dim", "y", place)
    plane = yield from rewriter.value(f'"arith.muli"({z}, {height})', BINARY, place)
    row = yield from rewriter.value(f'"arith.addi"({plane}, {y})', BINARY, place)
    start = yield from rewriter.value(f'"arith.muli"({row}, {width})', BINARY, place)
    return (yield from rewriter.value(f'"arith.addi"({start}, {x})', BINARY, place))


def _expand_assert(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Call `__assertfail` where the condition is false, as later releases lower the operation."""
    message = string_attribute(operation.rest, "msg") or ""
    file, line = rewriter.file_and_line(place)
    true = yield from rewriter.value('"arith.constant"() <{value = true}>', "() -> i1", place)
    negated = f'"arith.xori"({operation.operands[0]}, {true})'
    failed = yield from rewriter.value(negated, "(i1, i1) -> i1", place)
    yield f'{place.indent}"scf.if"({failed}) ({{'
    inner = place.inside
    texts = [rewriter.message_global(text, place) for text in (message, file, _UNKNOWN)]
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


def _constant(value: int, kind: str) -> str:
    return f'"llvm.mlir.constant"() <{{value = {value} : {kind}}}>'


_EXPANSIONS: dict[str, Expansion] = {
    "gpu.subgroup_size": _subgroup_size,
    "gpu.subgroup_id": _subgroup_id,
    "gpu.num_subgroups": _num_subgroups,
    "gpu.global_id": _global_id,
}
