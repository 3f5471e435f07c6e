"""Device operations that stock passes do not lower, rewritten in text before they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from mlir_offload.translate.mlir_text import (
    Locations,
    Operation,
    escape,
    parse_operation,
    split_signature,
    string_attribute,
)

WARP_SIZE = 32
_NEEDLE = re.compile(
    r'"(?:gpu\.(?:subgroup_size|num_subgroups|subgroup_id|global_id)|cf\.assert)"\('
)
_UNKNOWN = "(unknown)"
_POINTER = "!llvm.ptr"
_BINARY = "(index, index) -> index"
_ASSERTFAIL_TYPES = f"{_POINTER}, {_POINTER}, i32, {_POINTER}, i64"
_ASSERTFAIL = (
    f'    llvm.func @__assertfail({_ASSERTFAIL_TYPES}) attributes {{passthrough = ["noreturn"]}}'
)

_Value = Generator[str, None, str]
_Values = Generator[str, None, tuple[str, str, str]]


@dataclass(slots=True)
class _Rewriter:
    """Makes operations at the place of one that is replaced; value names never clash."""

    locations: Locations
    count: int = 0
    globals: list[str] = field(default_factory=list)

    def value(self, operation: str, signature: str, place: _Place) -> tuple[str, str]:
        """Return a new name and the line that defines it."""
        self.count += 1
        name = f"%mo_{self.count}"
        return name, f"{place.indent}{name} = {operation} : {signature}{place.location}"


@dataclass(frozen=True, slots=True)
class _Place:
    indent: str
    location: str


def expand_device_operations(
    lines: Sequence[str], *, locations: Locations, faults: frozenset[str]
) -> tuple[str, ...]:
    """Return the lines of a `gpu.module` without the operations that NVVM has no lowering for.

    Subgroups have 32 threads, numbered along x, then y, then z, as PTX numbers them. `cf.assert`
    is expanded where the release lowers it wrongly (`assert_outside_module`).
    """
    if not any(_NEEDLE.search(line) for line in lines):
        return tuple(lines)
    rewriter = _Rewriter(locations)
    expansions = dict(_EXPANSIONS)
    if "assert_outside_module" in faults:
        expansions["cf.assert"] = _expand_assert
    body: list[str] = []
    for line in lines:
        operation = parse_operation(line) if _NEEDLE.search(line) else None
        expand = expansions.get(operation.name) if operation else None
        if operation is None or expand is None:
            body.append(line)
        else:
            body.extend(expand(rewriter, operation, _place(operation)))
    if rewriter.globals:
        declared = any('sym_name = "__assertfail"' in line for line in lines)
        body[1:1] = [*rewriter.globals, *([] if declared else [_ASSERTFAIL])]
    return tuple(body)


def _place(operation: Operation) -> _Place:
    *_, location = split_signature(operation.rest)
    return _Place(" " * operation.indent, f" {location}" if location else "")


def _subgroup_size(rewriter: _Rewriter, operation: Operation, place: _Place) -> Iterator[str]:
    del rewriter
    yield _named(operation.results, _index(WARP_SIZE), "() -> index", place)


def _subgroup_id(rewriter: _Rewriter, operation: Operation, place: _Place) -> Iterator[str]:
    linear = yield from _linear_thread_id(rewriter, place)
    size = yield from _value(rewriter, _index(WARP_SIZE), "() -> index", place)
    yield _named(operation.results, f'"arith.divui"({linear}, {size})', _BINARY, place)


def _num_subgroups(rewriter: _Rewriter, operation: Operation, place: _Place) -> Iterator[str]:
    extents = yield from _dimensions(rewriter, "block_dim", place)
    x, y, z = extents
    area = yield from _value(rewriter, f'"arith.muli"({x}, {y})', _BINARY, place)
    threads = yield from _value(rewriter, f'"arith.muli"({area}, {z})', _BINARY, place)
    size = yield from _value(rewriter, _index(WARP_SIZE), "() -> index", place)
    yield _named(operation.results, f'"arith.ceildivui"({threads}, {size})', _BINARY, place)


def _global_id(rewriter: _Rewriter, operation: Operation, place: _Place) -> Iterator[str]:
    match = re.search(r"#gpu<dim ([xyz])>", operation.rest)
    dimension = match[1] if match else "x"
    block = yield from _id(rewriter, "block_id", dimension, place)
    extent = yield from _id(rewriter, "block_dim", dimension, place)
    thread = yield from _id(rewriter, "thread_id", dimension, place)
    start = yield from _value(rewriter, f'"arith.muli"({block}, {extent})', _BINARY, place)
    yield _named(operation.results, f'"arith.addi"({start}, {thread})', _BINARY, place)


def _linear_thread_id(rewriter: _Rewriter, place: _Place) -> _Value:
    x, y, z = yield from _dimensions(rewriter, "thread_id", place)
    width = yield from _id(rewriter, "block_dim", "x", place)
    height = yield from _id(rewriter, "block_dim", "y", place)
    plane = yield from _value(rewriter, f'"arith.muli"({z}, {height})', _BINARY, place)
    row = yield from _value(rewriter, f'"arith.addi"({plane}, {y})', _BINARY, place)
    start = yield from _value(rewriter, f'"arith.muli"({row}, {width})', _BINARY, place)
    return (yield from _value(rewriter, f'"arith.addi"({start}, {x})', _BINARY, place))


def _expand_assert(rewriter: _Rewriter, operation: Operation, place: _Place) -> Iterator[str]:
    """Call `__assertfail` where the condition is false, as later releases lower the operation."""
    message = string_attribute(operation.rest, "msg") or ""
    file, line = _file_and_line(rewriter.locations.of(place.location))
    true = yield from _value(rewriter, '"arith.constant"() <{value = true}>', "() -> i1", place)
    negated = f'"arith.xori"({operation.operands[0]}, {true})'
    failed = yield from _value(rewriter, negated, "(i1, i1) -> i1", place)
    yield f'{place.indent}"scf.if"({failed}) ({{'
    inner = _Place(place.indent + "  ", place.location)
    texts = [_message_global(rewriter, text, place) for text in (message, file, _UNKNOWN)]
    pointers = []
    for name in texts:
        address = f'"llvm.mlir.addressof"() <{{global_name = @{name}}}>'
        pointers.append((yield from _value(rewriter, address, f"() -> {_POINTER}", inner)))
    number = yield from _value(rewriter, _constant(line, "i32"), "() -> i32", inner)
    one = yield from _value(rewriter, _constant(1, "i64"), "() -> i64", inner)
    arguments = f"{pointers[0]}, {pointers[1]}, {number}, {pointers[2]}, {one}"
    # The custom form: the properties of llvm.call differ between releases.
    yield f"{inner.indent}llvm.call @__assertfail({arguments}) : ({_ASSERTFAIL_TYPES}) -> (){inner.location}"
    yield f'{inner.indent}"scf.yield"() : () -> (){inner.location}'
    yield f"{place.indent}}}, {{"
    yield f"{place.indent}}}) : (i1) -> (){place.location}"


def _message_global(rewriter: _Rewriter, text: str, place: _Place) -> str:
    name = f"__mo_assert_{len(rewriter.globals)}"
    size = len(text.encode("utf-8", errors="surrogateescape")) + 1
    rewriter.globals.append(
        f'    "llvm.mlir.global"() <{{addr_space = 0 : i32, constant, global_type = !llvm.array<{size} x i8>, '
        f'linkage = #llvm.linkage<internal>, sym_name = "{name}", value = "{escape(text)}\\00", '
        f"visibility_ = 0 : i64}}> ({{}}) : () -> (){place.location}"
    )
    return name


def _file_and_line(location: str) -> tuple[str, int]:
    file, _, rest = location.rpartition(":")
    file, _, line = file.rpartition(":")
    return (file, int(line)) if rest and line.isdigit() else (_UNKNOWN, 0)


def _value(rewriter: _Rewriter, operation: str, signature: str, place: _Place) -> _Value:
    name, line = rewriter.value(operation, signature, place)
    yield line
    return name


def _id(rewriter: _Rewriter, kind: str, dimension: str, place: _Place) -> _Value:
    operation = f'"gpu.{kind}"() <{{dimension = #gpu<dim {dimension}>}}>'
    return (yield from _value(rewriter, operation, "() -> index", place))


def _dimensions(rewriter: _Rewriter, kind: str, place: _Place) -> _Values:
    x = yield from _id(rewriter, kind, "x", place)
    y = yield from _id(rewriter, kind, "y", place)
    z = yield from _id(rewriter, kind, "z", place)
    return x, y, z


def _named(result: str, operation: str, signature: str, place: _Place) -> str:
    return f"{place.indent}{result} = {operation} : {signature}{place.location}"


def _index(value: int) -> str:
    return f'"arith.constant"() <{{value = {value} : index}}>'


def _constant(value: int, kind: str) -> str:
    return f'"llvm.mlir.constant"() <{{value = {value} : {kind}}}>'


_Expansion = Callable[[_Rewriter, Operation, _Place], Iterator[str]]

_EXPANSIONS: dict[str, _Expansion] = {
    "gpu.subgroup_size": _subgroup_size,
    "gpu.subgroup_id": _subgroup_id,
    "gpu.num_subgroups": _num_subgroups,
    "gpu.global_id": _global_id,
}
