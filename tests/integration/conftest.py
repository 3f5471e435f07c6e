"""What several integration tests use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.amd_emulator import DEVICE_LIBRARIES, AmdGpu, make_emulator
from support.cuda_emulator import CudaEmulator
from support.cuda_emulator import cuda_emulator as set_up_emulator

from mlir_offload.driver.tools.choose import choose_toolkit, places_for
from mlir_offload.toolchain.process import ProcessRunner

INPUTS = Path(__file__).parent / "inputs"
RECORDER = Path(__file__).parent / "runtime" / "recording_gpu.c"


def _compile(*words: object) -> None:
    subprocess.run(["/usr/lib/llvm-22/bin/clang", "-w", *map(str, words)], check=True)


@pytest.fixture(scope="session")
def rocm_recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a ROCm folder with the device libraries and a HIP runtime that records the calls."""
    if not DEVICE_LIBRARIES.is_dir():
        pytest.skip("no rocm-device-libs")
    root = tmp_path_factory.mktemp("rocm")
    (root / "lib").mkdir()
    (root / "amdgcn").mkdir()
    (root / "amdgcn" / "bitcode").symlink_to(DEVICE_LIBRARIES)
    flags = ("-DHIP", "-shared", "-fPIC", "-Wl,-soname,libamdhip64.so")
    _compile(*flags, RECORDER, "-o", root / "lib" / "libamdhip64.so")
    return root


@pytest.fixture(scope="session")
def gpu_recorders(tmp_path_factory: pytest.TempPathFactory, rocm_recorder: Path) -> tuple[str, str]:
    """Return the options for runtimes of both GPU vendors that record the calls.

    NVIDIA's libraries for sparse matrices are in its one, too.
    """
    root = _cuda_tools(tmp_path_factory.mktemp("cuda"))
    library = root / "lib64" / "libcudart.so"
    source = RECORDER.with_name("recording_sparse.c")
    _compile("-shared", "-fPIC", "-Wl,-soname,libcudart.so", source, "-o", library)
    for name in ("libcusparse.so", "libcusparseLt.so.0"):
        (root / "lib64" / name).symlink_to(library)
    return f"--cuda-path={root}", f"--rocm-path={rocm_recorder}"


def _cuda_tools(root: Path) -> Path:
    """Give a folder the tools of the toolkit, and a place for another libcudart."""
    toolkit = choose_toolkit(places_for(), ProcessRunner())
    for name in ("bin", "nvvm", "include"):
        (root / name).symlink_to(toolkit.root / name)
    (root / "lib64").mkdir()
    return root


@pytest.fixture(scope="session")
def cuda_recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CUDA toolkit with real tools and a libcudart that records what it is asked for."""
    root = _cuda_tools(tmp_path_factory.mktemp("cuda"))
    source = INPUTS / "recording_launches.c"
    _compile("-shared", "-fPIC", source, "-o", root / "lib64" / "libcudart.so")
    return root


@pytest.fixture(scope="session")
def cuda_emulator(tmp_path_factory: pytest.TempPathFactory) -> CudaEmulator:
    """Return a CUDA toolkit whose runtime library runs PTX without a GPU."""
    return set_up_emulator(tmp_path_factory.mktemp("emulator"))


@pytest.fixture(scope="session")
def amd(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> AmdGpu:
    """Return a ROCm folder whose runtime library executes AMD code without a GPU."""
    if not DEVICE_LIBRARIES.is_dir():
        pytest.skip("no rocm-device-libs")
    return AmdGpu(mlir_offload, make_emulator(tmp_path_factory.mktemp("amd") / "rocm"))
