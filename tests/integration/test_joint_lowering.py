"""Host and device code that one mlir-opt and one mlir-translate lower: what comes of it, and when."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
# It has two device modules, whose texts for AMD GPUs are others.
PROGRAM = EXAMPLES / "two_modules.mlir"
TARGETS = {19: "--offload-arch=sm_90,host", 22: "--offload-arch=sm_90,gfx90a,spirv64,host"}
BROKEN = """\
func.func private @f(tensor<4xf32>) -> index
func.func @main(%t: tensor<4xf32>) {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%x, %y, %z) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%i, %j, %k) in (%bx = %c1, %by = %c1, %bz = %c1) {
    gpu.terminator
  }
  %0 = call @f(%t) : (tensor<4xf32>) -> index
  return
}
"""


def compile_(
    driver: Sequence[str], folder: Path, *words: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*driver, *map(str, words)],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "release",
    [pytest.param(n, marks=pytest.mark.llvm(n), id=f"llvm{n}") for n in (19, 22)],
)
def test_an_object_is_the_same_if_a_launcher_has_its_parts_lowered_apart(
    release: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    words = (f"--llvm={release}", TARGETS[release], "-g", "-c", PROGRAM)
    joint = compile_(mlir_offload, tmp_path, *words, "-v", "-o", "joint.o")
    apart = compile_(
        mlir_offload, tmp_path, *words, "-o", "apart.o", MLIR_OFFLOAD_LAUNCHER="/usr/bin/env"
    )

    assert joint.returncode == apart.returncode == 0, joint.stderr + apart.stderr
    assert (tmp_path / "joint.o").read_bytes() == (tmp_path / "apart.o").read_bytes()
    assert "step join" in joint.stderr
    assert "step join" not in apart.stderr
    # One for all modules whose passes are those of the first.
    assert joint.stderr.count("/mlir-translate ") == 1 + joint.stderr.count("step unwrap")


@pytest.mark.llvm(22)
def test_an_error_is_that_of_the_part_lowered_alone(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "broken.mlir"
    source.write_text(BROKEN)
    words = ("--llvm=22", "--offload-arch=sm_90", "-c", source)
    joint = compile_(mlir_offload, tmp_path, *words)
    apart = compile_(mlir_offload, tmp_path, *words, MLIR_OFFLOAD_LAUNCHER="/usr/bin/env")

    assert joint.returncode == apart.returncode == 1
    assert joint.stderr == apart.stderr
    assert "broken.mlir:" in joint.stderr
    assert "joint" not in joint.stderr


@pytest.mark.llvm(22)
def test_a_small_program_starts_few_programs(mlir_offload: list[str], tmp_path: Path) -> None:
    words = ("--llvm=22", "--offload-arch=sm_90", "-v", "-c", EXAMPLES / "saxpy.mlir", "-o", "k.o")
    said = compile_(mlir_offload, tmp_path, *words).stderr
    started = [Path(line.split()[0]).name for line in said.splitlines() if line.startswith("/")]
    assert started == ["mlir-opt", "mlir-opt", "mlir-translate", "clang", "clang"]
