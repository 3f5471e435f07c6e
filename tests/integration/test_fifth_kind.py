"""A device kind that the compiler does not know by itself: one module per layer and one C file, registered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAXPY = ROOT / "docs" / "examples" / "saxpy.mlir"


def compiler(directory: Path, *words: str) -> None:
    path = os.pathsep.join((str(ROOT / ".importroot"), str(ROOT / "tests")))
    argv = [sys.executable, "-m", "fifth_kind", *words]
    subprocess.run(argv, cwd=directory, check=True, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.llvm(22)
def test_a_registered_kind_compiles_links_and_runs_a_kernel(tmp_path: Path) -> None:
    compiler(tmp_path, "--llvm=22", "--offload-arch=fifth", "-c", str(SAXPY), "-o", "saxpy.o")
    compiler(tmp_path, "--llvm=22", "saxpy.o", "-o", "saxpy")

    environment = {**os.environ, "MLIR_OFFLOAD_DEVICE": "fifth"}
    ran = subprocess.run(
        [tmp_path / "saxpy"], env=environment, check=True, capture_output=True, text=True
    )

    assert ran.stdout.startswith("saxpy: ok")
    assert "the fifth device ran" in ran.stderr


@pytest.mark.llvm(22)
def test_a_registered_kind_shares_a_program_with_another(tmp_path: Path) -> None:
    words = ("--llvm=22", "--offload-arch=sm_90,fifth", "-c", str(SAXPY), "-o", "saxpy.o")
    compiler(tmp_path, *words)

    command = [sys.executable, "-m", "mlir_offload.driver", "inspect", "saxpy.o"]
    shown = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert "sm_90" in shown
    assert "x86_64-fifth-linux-gnu" in shown
