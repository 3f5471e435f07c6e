"""Sparse matrices: what linked programs ask of cuSPARSE and cuSPARSELt.

A library that records the calls takes the place of both; a program in C by hand, as NVIDIA's samples are,
says which calls are right.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.runtime import EXIT_STATUS

PROGRAMS = Path(__file__).parent / "sparse"
pytestmark = pytest.mark.llvm(22)


def run(program: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def program(
    tmp_path_factory: pytest.TempPathFactory,
    mlir_offload: list[str],
    gpu_recorders: tuple[str, ...],
) -> Path:
    """Return a program with both kinds of sparse matrices."""
    output = tmp_path_factory.mktemp("sparse") / "program"
    options = ("--llvm=22", "--offload-arch=sm_90,host", PROGRAMS / "sparse.mlir")
    subprocess.run([*mlir_offload, gpu_recorders[0], *options, "-o", output], check=True)
    return output


def test_sparse_operations_become_the_calls_of_a_program_by_hand(
    program: Path, gpu_recorders: tuple[str, ...], tmp_path: Path
) -> None:
    library = Path(gpu_recorders[0].removeprefix("--cuda-path=")) / "lib64"
    by_hand = tmp_path / "by_hand"
    flags = ("-w", PROGRAMS / "by_hand.c", library / "libcudart.so", f"-Wl,-rpath,{library}")
    subprocess.run(["/usr/lib/llvm-22/bin/clang", *flags, "-o", by_hand], check=True)
    expected = run(by_hand).stdout.splitlines()
    assert len(expected) == 56
    assert _once_set(run(program).stdout.splitlines())[: len(expected)] == expected


def _once_set(calls: list[str]) -> list[str]:
    """Return the calls with the first cusparseSetStream alone: ours is set before each product."""
    first = next(n for n, call in enumerate(calls) if call.startswith("cusparseSetStream"))
    return [call for n, call in enumerate(calls) if n <= first or calls[first] != call]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RECORD_FAIL": "cusparseSpMV=3"}, "cusparseSpMV failed: CUSPARSE_STATUS_INVALID_VALUE (text)"),
        ({"RECORD_FAIL": "cusparseLtMatmul=10"}, "cusparseLtMatmul failed: CUSPARSE_STATUS_NOT_SUPPORTED"),
        ({"RECORD_FAIL": "cusparseLtInit=4"}, "cusparseLtInit failed: CUSPARSE_STATUS_ARCH_MISMATCH"),
        ({"RECORD_UNPRUNED": "1"}, "cusparseLtSpMMAPruneCheck: the matrix is not of the form '2 of 4'"),
        ({"RECORD_SPARSE_LT": "504"}, "this is cuSPARSELt 0.5.4"),
        ({"MLIR_OFFLOAD_DEVICE": "host"}, "cusparseCreateCsr is for devices of kind 'cuda', and the device is of kind 'host'"),
    ],
)  # fmt: skip
def test_a_failed_call_is_told_with_its_name_and_a_cure(
    program: Path, environment: dict[str, str], said: str
) -> None:
    failed = run(program, **environment)
    assert failed.returncode == EXIT_STATUS
    assert failed.stderr.startswith(f"mlir-offload: error: {said}\n  hint: ")
