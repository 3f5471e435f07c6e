"""What stock MLIR drops in silence or lowers wrongly, told before it runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from math import prod

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import is_declared_kernel, is_kernel
from mlir_offload.translate.host.launch_check import MOST_THREADS
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import Locations, OperationText, parse_operation, symbol_name
from mlir_offload.translate.pipelines import Refusal, Side, load_refusals

_KERNEL_MODULE = re.compile(r"\bgpu\.kernel_module\b")
_BLOCK_SIZE = re.compile(r"\bknown_block_size = array<i32: (\d+), (\d+), (\d+)>")


def check_top_level(operations: Iterable[OperationText], locations: Locations) -> None:
    """Raise SourceError for an operation that must not stand in the module of a program."""
    for operation in operations:
        fault = _top_level_fault(operation)
        if fault is not None:
            message, hint = fault
            raise SourceError(message, hint=hint, location=locations.of(operation.lines[-1]))
        check_nesting(operation, locations)


def _top_level_fault(operation: OperationText) -> tuple[str, str] | None:
    """Return what is wrong with it and the cure."""
    match operation.name:
        case "builtin.module" if MLIR.search(_KERNEL_MODULE, operation.attributes):
            return (
                "a module with the attribute gpu.kernel_module, as in 2019",
                "write gpu.module, with kernels as gpu.func @name(...) kernel",
            )
        case "builtin.module":
            return (
                "a module inside a module would be dropped by mlir-translate",
                "write the operations into the outer module, or one file for each module",
            )
        case "llvm.func" if is_kernel(operation):
            return (
                f"kernel @{symbol_name(operation)} stands outside of a gpu.module",
                "put device functions into a gpu.module and launch with gpu.launch_func",
            )
        case _:
            return None


def check_nesting(operation: OperationText, locations: Locations) -> None:
    """Raise SourceError for a module further inside of an operation."""
    for index, line in enumerate(operation.lines[1:], start=1):
        if '"gpu.module"(' not in line and '"builtin.module"(' not in line:
            continue
        inner = parse_operation(line)
        if inner is not None and inner.name in {"gpu.module", "builtin.module"}:
            msg = f"{inner.name} inside of {operation.name} is not supported"
            location = locations.of(_last_line(operation.lines[index:], inner.indent))
            raise SourceError(msg, location=location, hint="move it to the top level of the file")


def check_device_functions(module: OperationText, locations: Locations) -> None:
    """Raise SourceError for a device function that is declared with func.func.

    convert-gpu-to-nvvm makes it a call of `_mlir_ciface_<name>`, which nothing defines.
    """
    for operation in module.body:
        if (
            operation.name == "func.func"
            and operation.is_declaration
            and not is_declared_kernel(operation)
        ):
            name = symbol_name(operation)
            msg = f"device function @{name} is declared, but not defined"
            hint = f"define it in the gpu.module, or declare it with 'llvm.func @{name}(...)'"
            raise SourceError(msg, location=locations.of(operation.lines[-1]), hint=hint)


def check_launch_bounds(
    module: OperationText, locations: Locations, faults: Collection[str]
) -> None:
    """Raise SourceError for a block that no device runs, and for a bound that a release drops."""
    for operation in module.body:
        location = locations.of(operation.lines[-1])
        text = MLIR.blanked(f"{operation.lines[0]} {operation.lines[-1]}")
        size = _BLOCK_SIZE.search(text)
        if size is not None and prod(map(int, size.groups())) > MOST_THREADS:
            msg = f"known_block_size of @{symbol_name(operation)}: {prod(map(int, size.groups()))} threads"
            hint = f"a block has at most {MOST_THREADS} threads"
            raise SourceError(msg, hint=hint, location=location)
        if "waves_per_eu" in faults and "rocdl.waves_per_eu = " in text:
            msg = f"this release of LLVM drops rocdl.waves_per_eu of @{symbol_name(operation)}"
            raise SourceError(msg, hint="lower with LLVM 22, or leave it out", location=location)


def check_operations(
    lines: tuple[str, ...], side: Side, locations: Locations, *, dialect: str = ""
) -> None:
    """Raise SourceError for an operation that the recipe has no lowering for.

    `dialect` is what device code is lowered to.
    """
    refusals = [row for row in load_refusals(side) if row.dialect in {"", dialect}]
    if side == "host":
        _check_no_device_operation(lines, locations)
    for index, line in enumerate(lines):
        for refusal in refusals:
            if refusal.needle in line:
                _check_operation(refusal, lines[index:], locations)


def _check_no_device_operation(lines: tuple[str, ...], locations: Locations) -> None:
    """The back end of the host would crash on it."""
    for index, line in enumerate(lines):
        operation = parse_operation(line) if '"nvvm.' in line else None
        if operation is not None and operation.name.startswith("nvvm."):
            msg = f"{operation.name} is not supported in host code"
            last = _last_line(lines[index:], operation.indent) if line.endswith("({") else line
            hint = "NVVM operations belong into functions of a gpu.module"
            raise SourceError(msg, location=locations.of(last), hint=hint)


def _check_operation(refusal: Refusal, lines: tuple[str, ...], locations: Locations) -> None:
    operation = parse_operation(lines[0])
    if operation is None or not refusal.is_for(operation.name):
        return
    last = _last_line(lines, operation.indent) if lines[0].endswith("({") else lines[0]
    text = lines[0] if last is lines[0] else f"{lines[0]} {last}"
    if refusal.applies(text):
        message = refusal.message.replace("{operation}", operation.name)
        raise SourceError(message, hint=refusal.hint, location=locations.of(last))


def _last_line(lines: tuple[str, ...], indent: int) -> str:
    close = " " * indent + "})"
    return next((line for line in lines[1:] if line.startswith(close)), lines[0])
