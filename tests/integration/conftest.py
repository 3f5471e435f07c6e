"""What several integration tests use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.driver.choose import choose_toolkit, places_for
from mlir_offload.toolchain.process import ProcessRunner

INPUTS = Path(__file__).parent / "inputs"


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
