"""Assertions for devices without a function that a failed one calls."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.translate.fixup.rewriter import Expansion, Place, Rewriter
from mlir_offload.translate.mlir_text import Operation, escape, string_attribute


def _expand_assert(rewriter: Rewriter, operation: Operation, place: Place) -> Iterator[str]:
    """Print the message where the condition is false: there is no `__assertfail`.

    AMD GPUs stop then; SPIR-V has no instruction that does.
    """
    file, line = rewriter.file_and_line(place)
    message = string_attribute(operation.rest, "msg") or ""
    text = f"{file}:{line}: assertion failed: {message}\n".replace("%", "%%")
    true = yield from rewriter.value('"arith.constant"() <{value = true}>', "() -> i1", place)
    negated = f'"arith.xori"({operation.operands[0]}, {true})'
    failed = yield from rewriter.value(negated, "(i1, i1) -> i1", place)
    inner = place.inside
    yield f'{place.indent}"scf.if"({failed}) ({{'
    yield f'{inner.indent}"gpu.printf"() <{{format = "{escape(text)}"}}> : () -> (){place.location}'
    if rewriter.form.is_amdgpu:
        yield f'{inner.indent}"llvm.intr.trap"() : () -> (){place.location}'
    yield f'{inner.indent}"scf.yield"() : () -> (){place.location}'
    yield f"{place.indent}}}, {{"
    yield f"{place.indent}}}) : (i1) -> (){place.location}"


PRINTED_ASSERTION: dict[str, Expansion] = {
    "cf.assert": _expand_assert,
}
