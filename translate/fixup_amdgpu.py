"""Device operations that stock passes do not lower for AMD GPUs, or lower for subgroups of 32 only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir_text import (
    Operation,
    escape,
    split_signature,
    string_attribute,
)
from mlir_offload.translate.rewriter import Expansion, Place, Rewriter, Value, named

_SHUFFLED = frozenset({"i32", "i64", "f32", "f64"})
_NARROW = {"i8": "i8", "i16": "i16", "f16": "i16", "bf16": "i16"}
_REDUCTION = re.compile(r"#gpu<all_reduce_op (\w+)>")
_CLUSTER = re.compile(r"\bcluster_(size|stride) = (\d+)")
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


def _expand_assert(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Print the message and stop where the condition is false: there is no `__assertfail`."""
    file, line = rewriter.file_and_line(place)
    message = string_attribute(operation.rest, "msg") or ""
    text = f"{file}:{line}: assertion failed: {message}\n".replace("%", "%%")
    true = yield from rewriter.value('"arith.constant"() <{value = true}>', "() -> i1", place)
    negated = f'"arith.xori"({operation.operands[0]}, {true})'
    failed = yield from rewriter.value(negated, "(i1, i1) -> i1", place)
    inner = place.inside
    yield f'{place.indent}"scf.if"({failed}) ({{'
    yield f'{inner.indent}"gpu.printf"() <{{format = "{escape(text)}"}}> : () -> (){place.location}'
    yield f'{inner.indent}"llvm.intr.trap"() : () -> (){place.location}'
    yield f'{inner.indent}"scf.yield"() : () -> (){place.location}'
    yield f"{place.indent}}}, {{"
    yield f"{place.indent}}}) : (i1) -> (){place.location}"


def _reduce(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Combine over the subgroup by shuffles.

    The pass of LLVM 19 for it knows subgroups of 32 threads only, and is a test pass.
    """
    attributes, (kind,), *_ = split_signature(operation.rest)
    combine = _combining_operation(rewriter, attributes, kind, place)
    cluster = {name: int(number) for name, number in _CLUSTER.findall(attributes)}
    stride = cluster.get("stride", 1)
    end = cluster.get("size", rewriter.form.subgroup_size) * stride
    (value,) = operation.operands
    if end <= stride:
        yield named(operation.results, f'"arith.bitcast"({value})', f"({kind}) -> {kind}", place)
        return
    width = yield from _i32(rewriter, rewriter.form.subgroup_size, place)
    while stride < end:
        other = yield from _shuffled(rewriter, value, kind, (stride, width), place)
        combined, signature = f'"arith.{combine}"({value}, {other})', f"({kind}, {kind}) -> {kind}"
        if 2 * stride >= end:
            yield named(operation.results, combined, signature, place)
        else:
            value = yield from rewriter.value(combined, signature, place)
        stride *= 2


def _combining_operation(rewriter: Rewriter, attributes: str, kind: str, place: Place) -> str:
    match = _REDUCTION.search(attributes)
    on_integers, on_floats = _COMBINING.get(match[1] if match else "", ("", ""))
    combine = on_integers if kind.startswith("i") else on_floats
    if combine and (kind in _SHUFFLED or kind in _NARROW):
        return combine
    msg = f"gpu.subgroup_reduce {match[1] if match else ''} on {kind} has no lowering for AMD GPUs"
    hint = "reduce scalars of 8 to 64 bits, one after the other"
    raise SourceError(msg, hint=hint, location=rewriter.locations.of(place.location))


def _shuffled(
    rewriter: Rewriter, value: str, kind: str, where: tuple[int, str], place: Place
) -> Value:
    """Return the value of the thread whose number differs in one bit."""
    distance, width = where
    narrow = _NARROW.get(kind)
    carried, word = value, kind
    if narrow is not None:
        word = "i32"
        if narrow != kind:
            carried = yield from _converted(rewriter, "bitcast", carried, (kind, narrow), place)
        carried = yield from _converted(rewriter, "extui", carried, (narrow, word), place)
    offset = yield from _i32(rewriter, distance, place)
    rewriter.count += 1
    shuffled = f"%mo_{rewriter.count}"
    operation = f'"gpu.shuffle"({carried}, {offset}, {width}) <{{mode = #gpu<shuffle_mode xor>}}>'
    yield named(f"{shuffled}:2", operation, f"({word}, i32, i32) -> ({word}, i1)", place)
    result = f"{shuffled}#0"
    if narrow is not None:
        result = yield from _converted(rewriter, "trunci", result, (word, narrow), place)
        if narrow != kind:
            result = yield from _converted(rewriter, "bitcast", result, (narrow, kind), place)
    return result


def _converted(
    rewriter: Rewriter, operation: str, value: str, kinds: tuple[str, str], place: Place
) -> Value:
    signature = f"({kinds[0]}) -> {kinds[1]}"
    return (yield from rewriter.value(f'"arith.{operation}"({value})', signature, place))


def _i32(rewriter: Rewriter, value: int, place: Place) -> Value:
    operation = f'"arith.constant"() <{{value = {value} : i32}}>'
    return (yield from rewriter.value(operation, "() -> i32", place))


AMDGPU_EXPANSIONS: dict[str, Expansion] = {
    "cf.assert": _expand_assert,
    "gpu.subgroup_reduce": _reduce,
}
