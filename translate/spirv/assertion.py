"""Failed assertions for SPIR-V, which has no trap: set a flag that the host reads.

The address of the flag is a kernel parameter that the runtime identifies by name. A failing thread sets the
flag and returns from the kernel. It continues in a function other than the kernel, because it cannot leave the
caller, and in a module with barriers, because the other threads would wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from mlir_offload.offload.ir_syntax import LLVM_IR
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.text import (
    CALL,
    DeviceModule,
    Function,
    callee_name,
    label_of,
    symbol,
)
from mlir_offload.translate.legalize.assertion import FAILURE_MARK

# The same name as in offload/runtime/sycl_spirv.c.
_FLAG = "%mo.failures"
_PARAMETER = f"ptr addrspace(1) {_FLAG}"
_BARRIER = "@llvm.nvvm.bar"
_PREDECESSOR = ir_pattern(", %`label:bare` ]")


def with_failures(
    module: DeviceModule, kernels: Collection[str], *, keeps_functions: bool
) -> DeviceModule:
    """Set the flag after each failed assertion.

    A function that other files call keeps its parameters, so that its failed assertions are only printed.
    """
    mark = symbol(FAILURE_MARK)
    if not any(mark in line for function in module.functions for line in function.body):
        return module
    told = _functions_that_fail(module, kernels, keeps_functions=keeps_functions)
    waits = any(_BARRIER in line for function in module.functions for line in function.body)
    leaving: frozenset[str] = frozenset() if waits else frozenset(kernels)
    functions = tuple(_told(function, told, leaving) for function in module.functions)
    declarations = tuple(item for item in module.declarations if item[0] != FAILURE_MARK)
    return replace(module, functions=functions, declarations=declarations)


def _functions_that_fail(
    module: DeviceModule, kernels: Collection[str], *, keeps_functions: bool
) -> frozenset[str]:
    """Return the functions with assertions, and their callers, if they can get the flag as a parameter."""
    able = {
        function.name: function
        for function in module.functions
        if function.name in kernels or not keeps_functions or " internal " in function.head
    }
    found: set[str] = set()
    wanted = {FAILURE_MARK}
    while grown := {
        name
        for name, function in able.items()
        if name not in found and any(_calls(line) in wanted for line in function.body)
    }:
        found |= grown
        wanted |= grown
    return frozenset(found)


def _calls(line: str) -> str:
    match = CALL.match(line) if "call " in line else None
    return callee_name(match["callee"]) if match else ""


def _told(function: Function, told: frozenset[str], leaving: frozenset[str]) -> Function:
    if function.name not in told:
        mark = symbol(FAILURE_MARK)
        kept = tuple(line for line in function.body if mark not in line)
        return replace(function, body=kept)
    body = tuple(_body(function, told, leaves=function.name in leaving))
    return replace(function, body=body).with_parameters((*function.parameters, _PARAMETER))


def _body(function: Function, told: frozenset[str], *, leaves: bool) -> Iterator[str]:
    parts = _last_parts(function) if leaves else {}
    label, part = "", 0
    for line in function.body:
        if (found := label_of(line)) is not None:
            label, part = found, 0
        called = _calls(line)
        if called == FAILURE_MARK:
            yield f"  store i32 1, {_PARAMETER}"
            if leaves:
                part += 1
                yield "  ret void"
                yield f"{label}.dead{part}:"
        elif called in told:
            yield _with_flag(line)
        else:
            yield _with_new_predecessors(line, parts) if " phi " in line else line


def _last_parts(function: Function) -> dict[str, str]:
    """Return for each block with assertions the label of its last part after splitting."""
    parts: dict[str, int] = {}
    label = ""
    for line in function.body:
        if (found := label_of(line)) is not None:
            label = found
        if _calls(line) == FAILURE_MARK:
            parts[label] = parts.get(label, 0) + 1
    return {label: f"{label}.dead{count}" for label, count in parts.items()}


def _with_new_predecessors(line: str, parts: dict[str, str]) -> str:
    return _PREDECESSOR.sub(lambda match: f", %{parts.get(match[1], match[1])} ]", line)


def _with_flag(line: str) -> str:
    match = CALL.match(line)
    if match is None:
        return line
    rest = match["rest"]
    comma = "" if rest.startswith(")") else ", "
    end = LLVM_IR.closing("(" + rest, 0) - 1
    return f"{line[: match.start('rest')]}{rest[:end]}{comma}{_PARAMETER}{rest[end:]}"
