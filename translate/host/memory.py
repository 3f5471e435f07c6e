"""Launches of kernels that were made of host code: what they say of the host memory they work on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

from mlir_offload.translate.gpu_module import launches_in
from mlir_offload.translate.gpu_operation import argument_types
from mlir_offload.translate.mlir.operation import CustomOperation, Operation
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import Attribute, float_width, integer_width, parse_shaped

_DESCRIBE = "mgpuDescribeMemRef"
_UNRANKED = "memref<*x"
_BYTE = 8


def describe_launches(functions: Iterable[Operation]) -> list[Operation]:
    """Put a call for each memref before each launch; return the declarations of what is called.

    The runtime copies what the device cannot reach, see offload/runtime/launch_memory.c.
    """
    rewriter = Rewriter("%mo_memory_")
    for function in functions:
        if any(True for _ in launches_in(function)):
            for region in function.regions:
                rewriter.rewrite(region, _pattern)
    head = f"llvm.func @{_DESCRIBE}(i32, i32, i64)"
    return [CustomOperation("", head=head)] if rewriter.has_created else []


def _pattern(operation: Operation) -> Callable[[Rewriter, Operation], None] | None:
    return _describe if operation.name == "gpu.launch_func" else None


def _describe(rewriter: Rewriter, launch: Operation) -> None:
    for values in _memrefs(argument_types(launch)):
        names = ", ".join(
            rewriter.value("llvm.mlir.constant", (), kind, {"value": f"{value} : {kind}"}).name
            for value, kind in zip(values, ("i32", "i32", "i64"), strict=True)
        )
        # The custom form: the properties of llvm.call differ between releases.
        rewriter.custom(f"llvm.call @{_DESCRIBE}({names}) : (i32, i32, i64) -> ()")
    rewriter.insert(launch)


def _memrefs(types: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the first parameter, the rank and the bytes of an element of each memref.

    gpu-to-llvm passes a memref as two pointers, the offset, and a size and a stride per dimension.
    """
    param = 0
    for kind in types:
        memref = parse_shaped(kind, "memref")
        if memref is None:
            param += 2 if kind.startswith(_UNRANKED) else 1
            continue
        rank, size = len(memref.sizes), element_bytes(memref.element)
        if size:
            yield param, rank, size
        param += 3 + 2 * rank


def element_bytes(kind: str) -> int:
    """Return the distance of two elements in memory; 0 where it is not known."""
    if kind == "index":
        return _BYTE
    if vector := parse_shaped(kind, "vector"):
        *outer, last = (size or 0 for size in vector.sizes)
        return prod(outer) * _padded(last * element_bytes(vector.element))
    if Attribute(kind).name == "complex":
        return 2 * element_bytes(Attribute(kind).body)
    return _padded(-(-(integer_width(kind) or float_width(kind)) // _BYTE))


def _padded(size: int) -> int:
    return 1 << (size - 1).bit_length() if size else 0
