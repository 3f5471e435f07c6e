"""What stock MLIR drops silently or lowers wrongly, reported before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import is_declared_kernel, is_kernel
from mlir_offload.translate.host.launch_check import MOST_THREADS
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.pipelines import Refusal, Side, load_refusals

_MODULES = frozenset({"gpu.module", "builtin.module"})


def check_top_level(operations: Iterable[Operation], locations: Locations) -> None:
    """Raise SourceError for an operation that must not stand in the module of a program."""
    for operation in operations:
        fault = _top_level_fault(operation)
        if fault is not None:
            message, hint = fault
            raise SourceError(message, hint=hint, location=locations.of(operation))
        check_nesting(operation, locations)


def _top_level_fault(operation: Operation) -> tuple[str, str] | None:
    """Return what is wrong with it and the hint."""
    match operation.name:
        case "builtin.module" if operation.has("gpu.kernel_module"):
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
                f"kernel @{operation.symbol} stands outside of a gpu.module",
                "put device functions into a gpu.module and launch with gpu.launch_func",
            )
        case _:
            return None


def check_nesting(operation: Operation, locations: Locations) -> None:
    """Raise SourceError for a module further inside of an operation."""
    for inner in operation.walk_inside():
        if inner.name in _MODULES:
            msg = f"{inner.name} inside of {operation.name} is not supported"
            hint = "move it to the top level of the file"
            raise SourceError(msg, location=locations.of(inner), hint=hint)


def check_device_functions(module: Operation, locations: Locations) -> None:
    """Raise SourceError for a device function that is declared with func.func.

    convert-gpu-to-nvvm makes it a call of `_mlir_ciface_<name>`, which nothing defines.
    """
    for operation in module.operations:
        if (
            operation.name == "func.func"
            and operation.is_declaration
            and not is_declared_kernel(operation)
        ):
            name = operation.symbol
            msg = f"device function @{name} is declared, but not defined"
            hint = f"define it in the gpu.module, or declare it with 'llvm.func @{name}(...)'"
            raise SourceError(msg, location=locations.of(operation), hint=hint)


def check_launch_bounds(module: Operation, locations: Locations, faults: Collection[str]) -> None:
    """Raise SourceError for a block that no device runs, and for a bound that a release drops."""
    for operation in module.operations:
        size = operation.known_block_size
        if prod(size) > MOST_THREADS:
            msg = f"a block of @{operation.symbol} has {prod(size)} threads"
            hint = f"launch smaller blocks: the most is {MOST_THREADS} threads"
            raise SourceError(msg, hint=hint, location=locations.of(operation))
        if "waves_per_eu" in faults and operation.has("rocdl.waves_per_eu"):
            msg = f"this release of LLVM drops rocdl.waves_per_eu of @{operation.symbol}"
            hint = "lower with LLVM 22, or leave it out"
            raise SourceError(msg, hint=hint, location=locations.of(operation))


def check_operations(
    operation: Operation, side: Side, locations: Locations, *, dialect: str = ""
) -> None:
    """Raise SourceError for an operation, or one in it, that the recipe has no lowering for.

    `dialect` is what device code is lowered to.
    """
    refusals = [row for row in load_refusals(side) if row.dialect in {"", dialect}]
    named = {row.operation for row in refusals}
    dialects = tuple(name for name in named if name.endswith("."))
    for inner in (operation, *operation.walk_inside()):
        if side == "host" and inner.name.startswith("nvvm."):
            # The back end of the host would crash on it.
            msg = f"{inner.name} is not supported in host code"
            hint = "NVVM operations belong into functions of a gpu.module"
            raise SourceError(msg, location=locations.of(inner), hint=hint)
        if inner.name in named or inner.name.startswith(dialects):
            _check_operation(inner, refusals, locations)


def _check_operation(
    operation: Operation, refusals: Iterable[Refusal], locations: Locations
) -> None:
    refusal = next((row for row in refusals if row.applies(operation)), None)
    if refusal is not None:
        message = refusal.message.replace("{operation}", operation.name)
        raise SourceError(message, hint=refusal.hint, location=locations.of(operation))
