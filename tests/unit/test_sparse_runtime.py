"""When a program gets the runtime's part for sparse matrices, and what it is told without."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.offload.sparse_runtime import is_sparse, sparse_link_arguments
from mlir_offload.toolchain.errors import ToolchainError, VerificationError
from mlir_offload.toolchain.target import Kind


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [("mgpuCreateCsr", True), ("mgpuSpMVBufferSize", True), ("mgpuSpGEMMCopy", True), ("mgpuMemcpy", False)],
)  # fmt: skip
def test_only_sparse_operations_need_the_library(symbol: str, expected: bool) -> None:  # noqa: FBT001
    assert is_sparse({symbol, "mgpuLaunchKernel"}, {Kind.CUDA}) is expected


def test_sparse_matrices_without_a_gpu_of_nvidia_are_refused() -> None:
    with pytest.raises(
        VerificationError, match="mgpuSpMV: sparse matrices are lowered to cuSPARSE"
    ):
        is_sparse({"mgpuSpMV"}, {Kind.OPENMP, Kind.HIP})


def test_cusparselt_is_refused_by_its_name() -> None:
    with pytest.raises(VerificationError, match="need cuSPARSELt"):
        is_sparse({"mgpuCuSparseLtSpMM"}, {Kind.CUDA})


def test_cusparse_is_found_in_the_toolkit_or_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"has no libcusparse\.so"):
        sparse_link_arguments(tmp_path)
    library = tmp_path / "lib64" / "libcusparse.so"
    library.parent.mkdir()
    library.touch()
    assert sparse_link_arguments(tmp_path)[0] == str(library)
