"""Kernels made of host code, on devices that reach the host's memory and on those that do not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.opencl import opencl_environment

INPUTS = Path(__file__).parent / "inputs"
SOURCES = (INPUTS / "host_memory.mlir", INPUTS / "host_memory.c")
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.fixture(scope="module")
def separate_memory(cuda_recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CUDA toolkit whose libcudart has a device with memory of its own."""
    root = tmp_path_factory.mktemp("separate")
    for name in ("bin", "nvvm", "include"):
        (root / name).symlink_to(cuda_recorder / name)
    (root / "lib64").mkdir()
    flags = ("-shared", "-fPIC", "-w", INPUTS / "separate_memory.c")
    run("/usr/lib/llvm-22/bin/clang", *flags, "-o", root / "lib64" / "libcudart.so")
    return root


def run(*argv: object, **environment: str) -> str:
    words = [str(word) for word in argv]
    env = os.environ | environment
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("release", RELEASES)
def test_a_device_with_memory_of_its_own_gets_copies_and_gives_back_what_it_changed(
    release: int, mlir_offload: list[str], separate_memory: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    flags = (f"--llvm={release}", "--pipeline=linalg", "--offload-arch=sm_80", "-rdynamic")
    run(*mlir_offload, *flags, f"--cuda-path={separate_memory}", *SOURCES, "-o", program)

    lines = run(program).splitlines()

    # Two for memory apart, one where memrefs overlap, none for registered memory.
    assert lines.count("cudaMalloc") == 2 + 1 + 2 + 1
    assert lines.count("cudaFree") == lines.count("cudaMalloc")


@pytest.mark.llvm(22)
def test_the_cpu_works_on_the_memory_itself(mlir_offload: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program"
    flags = ("--pipeline=linalg", "--offload-arch=host", "-O0")
    run(*mlir_offload, *flags, *SOURCES, "-o", program)

    assert run(program) == ""


@pytest.mark.llvm(22)
def test_an_opencl_device_gets_memory_that_it_reaches(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "program"
    flags = ("--llvm=22", "--pipeline=linalg", "--offload-arch=spirv64")
    run(*mlir_offload, *flags, *SOURCES, "-o", program)

    assert run(program, **opencl_environment()) == ""
