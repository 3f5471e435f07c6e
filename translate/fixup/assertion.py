"""Assertions for devices without a function that a failed one calls."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.translate.fixup.rewriter import Expansion, Place, Rewriter
from mlir_offload.translate.mlir_text import Operation, escape, string_attribute

FAILURE_MARK = "mo.assertion_failed"
"""The function that device code for SPIR-V calls after a failed assertion; its translation removes it."""


def _expand_assert(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Print the message where the condition is false: there is no `__assertfail`.

    AMD GPUs stop then; SPIR-V has no instruction that does.
    """
    true = yield from rewriter.value('"arith.constant"() <{value = true}>', "() -> i1", place)
    negated = f'"arith.xori"({operation.operands[0]}, {true})'
    failed = yield from rewriter.value(negated, "(i1, i1) -> i1", place)
    inner = place.inside
    yield f'{place.indent}"scf.if"({failed}) ({{'
    yield from _print(rewriter, string_attribute(operation.rest, "msg") or "", inner)
    if rewriter.form.is_amdgpu:
        yield f'{inner.indent}"llvm.intr.trap"() : () -> (){place.location}'
    if rewriter.form.ends_kernel_by_mark:
        rewriter.globals[FAILURE_MARK] = f"    llvm.func @{FAILURE_MARK}()"
        # The custom form: the properties of llvm.call differ between releases.
        yield f"{inner.indent}llvm.call @{FAILURE_MARK}() : () -> (){place.location}"
    yield f'{inner.indent}"scf.yield"() : () -> (){place.location}'
    yield f"{place.indent}}}, {{"
    yield f"{place.indent}}}) : (i1) -> (){place.location}"


def _print(rewriter: Rewriter, message: str, place: Place) -> Iterator[str]:
    """Print what CUDA prints of a failed assertion."""
    file, line = rewriter.file_and_line(place)
    block = yield from rewriter.dimensions("block_id", place)
    thread = yield from rewriter.dimensions("thread_id", place)
    head = f"{file}:{line}: {rewriter.function_name(place)}".replace("%", "%%")
    shown = message.replace("%", "%%")
    ids = "[%lld,%lld,%lld]"
    text = f"{head}: block: {ids}, thread: {ids} Assertion `{shown}` failed.\n"
    printed = f'"gpu.printf"({", ".join((*block, *thread))}) <{{format = "{escape(text)}"}}>'
    types = ", ".join(["index"] * 6)
    yield f"{place.indent}{printed} : ({types}) -> (){place.location}"


PRINTED_ASSERTION: dict[str, Expansion] = {
    "cf.assert": _expand_assert,
}
