"""External device functions: their symbol names, and whether they synchronize with other threads.

An external function is defined in another file. Like every device function, it takes the thread context. If it
synchronizes with other threads, its callers must run on fibers. A caller relies on the attribute `convergent` of
its declaration, as LLVM does. Every function has a symbol name for callers with a convergent declaration. A
function that does not synchronize has a second name for other callers.
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
    """Yield the symbol names by which other files call a function."""
    yield f"{_WAITING}{name}"
    if not waits:
        yield f"{PREFIX}{name}"


def source_name(name: str) -> str:
    """Return the source name of an exported function."""
    return name.removeprefix(_WAITING).removeprefix(PREFIX)


def foreign_function(module: DeviceModule, name: str) -> Replacement | None:
    """Return the replacement of a function that the module declares and another file defines; None for others."""
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
