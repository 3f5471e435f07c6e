"""Legalize assertions, for devices with and without `__assertfail`."""

from __future__ import annotations

from mlir_offload.translate.legalize.arith import convert, negated, when
from mlir_offload.translate.legalize.rewriter import POINTER, DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import quoted

FAILURE_MARK = "mo.assertion_failed"
"""The function that marks a failed assertion in device code for SPIR-V; translate/spirv replaces it."""

_NARROW = {"i1": "extui", "i8": "extsi", "i16": "extsi"}
_ASSERTFAIL = "__assertfail"
_ASSERTFAIL_TYPES = f"{POINTER}, {POINTER}, i32, {POINTER}, i64"


def printed_assertion(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Print the message if the condition is false, for targets without `__assertfail`.

    AMD GPUs then execute a trap; SPIR-V does not have one.
    """

    def fail() -> None:
        _print(rewriter, operation.attribute("msg").string)
        if rewriter.form.is_amdgpu:
            rewriter.create("llvm.intr.trap")
        if rewriter.form.ends_kernel_by_mark:
            rewriter.add_global(FAILURE_MARK, f"llvm.func @{FAILURE_MARK}()")
            # The custom form: the properties of llvm.call differ between releases.
            rewriter.custom(f"llvm.call @{FAILURE_MARK}() : () -> ()")

    when(rewriter, negated(rewriter, operation.operands[0]), fail)


def called_assertion(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Call `__assertfail` if the condition is false, like the lowering of later releases."""

    def fail() -> None:
        file, line = rewriter.file_and_line()
        texts = (operation.attribute("msg").string, file, rewriter.function_name())
        names = [rewriter.message_global(text) for text in texts]
        rewriter.add_global(
            _ASSERTFAIL,
            f'llvm.func @{_ASSERTFAIL}({_ASSERTFAIL_TYPES}) attributes {{passthrough = ["noreturn"]}}',
        )
        message, where, function = (_address(rewriter, name) for name in names)
        number, one = _constant(rewriter, line, "i32"), _constant(rewriter, 1, "i64")
        arguments = ", ".join(value.name for value in (message, where, number, function, one))
        # The custom form: the properties of llvm.call differ between releases.
        rewriter.custom(f"llvm.call @{_ASSERTFAIL}({arguments}) : ({_ASSERTFAIL_TYPES}) -> ()")

    when(rewriter, negated(rewriter, operation.operands[0]), fail)


def _address(rewriter: DeviceRewriter, name: str) -> Value:
    return rewriter.value("llvm.mlir.addressof", (), POINTER, {"global_name": f"@{name}"})


def _constant(rewriter: DeviceRewriter, value: int, kind: str) -> Value:
    return rewriter.value("llvm.mlir.constant", (), kind, {"value": f"{value} : {kind}"})


def _print(rewriter: DeviceRewriter, message: str) -> None:
    """Print the message of a failed assertion in CUDA's format."""
    file, line = rewriter.file_and_line()
    ids = (*rewriter.dimensions("block_id"), *rewriter.dimensions("thread_id"))
    values = [_printed(rewriter, value) for value in ids]
    head = f"{file}:{line}: {rewriter.function_name()}".replace("%", "%%")
    shown = message.replace("%", "%%")
    place = "[%lld,%lld,%lld]"
    text = f"{head}: block: {place}, thread: {place} Assertion `{shown}` failed.\n"
    rewriter.create("gpu.printf", values, (), {"format": quoted(text)})


def printf(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Widen integers narrower than 32 bits to 32, as C's default promotions do, and index to 64."""
    operation.operands = [_printed(rewriter, value) for value in operation.operands]
    rewriter.insert(operation)


def _printed(rewriter: DeviceRewriter, value: Value) -> Value:
    if value.type == "index":
        return convert(rewriter, "index_cast", value, "i64")
    return convert(rewriter, _NARROW[value.type], value, "i32") if value.type in _NARROW else value
