"""Device functions of one file that kernels of another call on the CPU: their names, and who may wait.

A function of another file is called with the context of the thread, as every device function is.
One that waits for other threads is found by another name than one that does not: a caller has to
know, because threads that wait need a stack each. It knows by `convergent`, as LLVM does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.offload.ir_syntax import LLVM_IR, is_local
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.cpu.replacement import Replacement, Sync
from mlir_offload.translate.cpu.text import symbol, without_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlir_offload.translate.cpu.text import DeviceModule

PREFIX = "mo.device."
_WAITING = "mo.device.convergent."
_GROUP = ir_pattern("#`number:number``indent``end`")


def public_functions(module: DeviceModule, kernels: frozenset[str]) -> tuple[str, ...]:
    """Return the functions of a module that other files may call."""
    return tuple(
        function.name
        for function in module.functions
        if function.name not in kernels and not is_local(function.head.removeprefix("define "))
    )


def exported_names(name: str, *, waits: bool) -> Iterator[str]:
    """Return the names by which other files call a function."""
    yield f"{_WAITING}{name}"
    if not waits:
        yield f"{PREFIX}{name}"


def source_name(name: str) -> str:
    """Return the name in the source of a function that other files call."""
    return name.removeprefix(_WAITING).removeprefix(PREFIX)


def foreign_function(module: DeviceModule, name: str) -> Replacement | None:
    """Return what represents a function that the module declares and another file defines."""
    line = dict(module.declarations).get(name)
    if line is None or name.startswith("llvm."):  # Only LLVM defines intrinsics.
        return None
    waits = _is_convergent(module, line)
    target = f"{_WAITING if waits else PREFIX}{name}"
    start = line.index("(", line.index("@"))
    parameters = line[start + 1 : LLVM_IR.closing(line, start)]
    head = without_location(line[:start]).replace(symbol(name), symbol(target))
    listed = f"ptr, {parameters}" if parameters else "ptr"
    return Replacement(target, f"{head}({listed})", Sync.WARP if waits else Sync.NONE)


def _is_convergent(module: DeviceModule, declaration: str) -> bool:
    group = _GROUP.search(declaration)
    head = f"attributes #{group[1]} = " if group else ""
    texts = [line for line in module.tail if head and line.startswith(head)]
    return any("convergent" in text.split() for text in (declaration, *texts))
