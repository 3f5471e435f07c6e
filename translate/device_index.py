"""Indices of lowered device code, in forms of which LLVM makes less."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE
from mlir_offload.translate import narrow_address, narrow_cast, thread_range
from mlir_offload.translate.mlir.operation import Operation

_ADDRESS, _NARROW_INDEX = "llvm.getelementptr", ", i32) -> !llvm.ptr"


def ease_indices(operations: Sequence[Operation], triple: str) -> None:
    """Bring the indices and addresses of a lowered device module to these forms."""
    is_amdgpu, is_narrow = triple == AMDGPU_TRIPLE, _has_narrow_indices(operations)
    if is_amdgpu:
        narrow_cast.widen_dimensions(operations)
    if is_narrow:
        narrow_address.split_addresses(operations)
    # For NVIDIA GPUs the size of a block lets LLVM add in 32 bits what has 64.
    if is_amdgpu or (is_narrow and triple == NVPTX_TRIPLE):
        thread_range.widen_ranges(operations)


def _has_narrow_indices(operations: Iterable[Operation]) -> bool:
    return any(
        inner.name == _ADDRESS and _NARROW_INDEX in inner.head
        for operation in operations
        for inner in operation.walk_inside()
    )
