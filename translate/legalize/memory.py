"""Legalize the allocation of memory in kernels."""

from __future__ import annotations

from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import parse_shaped

_FREE = "free"


def release(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Cast the buffer of memref.dealloc to the default memory space, and declare `free`.

    The passes call `free` with a pointer of another space, and LLVM 19 declares it outside of the gpu.module.
    """
    (buffer,) = operation.operands
    memref = parse_shaped(buffer.type, "memref")
    rewriter.add_global(_FREE, f"llvm.func @{_FREE}(!llvm.ptr)", rewriter.location)
    space = memref.parameters[-1] if memref and memref.parameters else ""
    if space and not space.startswith(("strided", "affine_map", "#map")):
        kind = f"{buffer.type.removesuffix(f', {space}>')}>"
        buffer = rewriter.value("memref.memory_space_cast", (buffer,), kind)
    rewriter.create("memref.dealloc", (buffer,))
