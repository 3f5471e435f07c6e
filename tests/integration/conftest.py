"""What several integration tests use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.driver.choose import choose_toolkit, places_for
from mlir_offload.toolchain.process import ProcessRunner

INPUTS = Path(__file__).parent / "inputs"
_DEBIAN_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")


@pytest.fixture(scope="session")
def cuda_recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CUDA toolkit with real tools and a libcudart that records what it is asked for."""
    toolkit = choose_toolkit(places_for(), ProcessRunner())
    root = tmp_path_factory.mktemp("cuda")
    for name in ("bin", "nvvm", "include"):
        (root / name).symlink_to(toolkit.root / name)
    (root / "lib64").mkdir()
    library = root / "lib64" / "libcudart.so"
    flags = ("-shared", "-fPIC", "-w", str(INPUTS / "recording_launches.c"))
    subprocess.run(["/usr/lib/llvm-22/bin/clang", *flags, "-o", str(library)], check=True)
    return root


@pytest.fixture(scope="session")
def hip_recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a ROCm folder with the device libraries and a HIP runtime that records the calls."""
    if not _DEBIAN_LIBRARIES.is_dir():
        pytest.skip("no rocm-device-libs")
    root = tmp_path_factory.mktemp("rocm")
    (root / "lib").mkdir()
    (root / "amdgcn").mkdir()
    (root / "amdgcn" / "bitcode").symlink_to(_DEBIAN_LIBRARIES)
    flags = ("-shared", "-fPIC", "-w", "-Wl,-soname,libamdhip64.so")
    source, library = INPUTS.parent / "runtime" / "recording_hip.c", root / "lib" / "libamdhip64.so"
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    return root
