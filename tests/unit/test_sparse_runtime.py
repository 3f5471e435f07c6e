"""When a program gets the runtime's part for sparse matrices, and errors if it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.offload.sparse_runtime import sparse_link_arguments, sparse_parts
from mlir_offload.toolchain.errors import ToolchainError, VerificationError
from mlir_offload.toolchain.target import Kind


@pytest.mark.parametrize(
    ("symbols", "sources"),
    [
        (["mgpuCreateCsr"], ["sparse.c"]),
        (["mgpuSpMVBufferSize"], ["sparse.c"]),
        (["mgpuSpGEMMCopy", "mgpuMemcpy"], ["sparse.c"]),
        (["mgpuMemcpy", "mgpuLaunchKernel"], []),
        (["mgpuCuSparseLtSpMM"], ["sparse_lt.c"]),
        (["mgpuCreateSparseEnv"], ["sparse.c"]),
        (["mgpuDestroySparseLtEnv"], ["sparse_lt.c"]),
        (["mgpuCusparseLtCreate2To4SpMat", "mgpuCreateCuSparseLtDnMat"], ["sparse_lt.c"]),
        (["mgpuDestroyCuSparseLtDnMat", "mgpuDestroySpMat"], ["sparse.c", "sparse_lt.c"]),
    ],
)
def test_only_sparse_operations_need_the_libraries(symbols: list[str], sources: list[str]) -> None:
    assert [part.source for part in sparse_parts(symbols, {Kind.CUDA})] == sources


@pytest.mark.parametrize("symbol", ["mgpuSpMV", "mgpuCuSparseLtSpMM"])
def test_sparse_matrices_without_a_gpu_of_nvidia_are_refused(symbol: str) -> None:
    with pytest.raises(
        VerificationError, match=f"{symbol}: sparse matrices are lowered to cuSPARSE"
    ):
        sparse_parts({symbol}, {Kind.OPENMP, Kind.HIP})


@pytest.mark.parametrize("name", ["libcusparse.so", "libcusparse.so.12"])
def test_the_library_is_found_in_the_toolkit_or_asked_for(tmp_path: Path, name: str) -> None:
    (part,) = sparse_parts({"mgpuSpMV"}, {Kind.CUDA})
    with pytest.raises(ToolchainError, match=r"has no libcusparse\.so"):
        sparse_link_arguments(part, tmp_path)
    library = tmp_path / "lib64" / name
    library.parent.mkdir()
    library.touch()
    assert sparse_link_arguments(part, tmp_path)[0] == str(library)
