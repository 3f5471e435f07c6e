"""Every example compiled by the older release, linked for several GPUs, and run on the CPU.

What the newest release makes of the examples with kernels runs on all devices in test_gpu_examples.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mlir_offload.driver.cli import main
from mlir_offload.offload.link.coverage import held_kernels
from mlir_offload.offload.link.objects import read_objects

ROOT = Path(__file__).resolve().parents[2]
# These functions have callers in three languages: test_calling.
CALLED = {"calling"}
EXAMPLES = [
    path for path in sorted((ROOT / "docs" / "examples").glob("*.mlir")) if path.stem not in CALLED
]
# These are called from C, or hold nothing for a GPU.
WITH_MAIN_IN_C = {"square": "main.c"}
WITHOUT_KERNELS = {"plain"}
# Lowered for NVIDIA's GPUs already.
FOR_NVIDIA = {"lowered"}
CASES = [
    pytest.param(example, release, marks=pytest.mark.llvm(release), id=f"{example.stem}-{release}")
    for release in (19, 22)
    for example in EXAMPLES
    if release == 19 or example.stem in WITHOUT_KERNELS
]


def inputs_of(example: Path) -> list[str]:
    main = WITH_MAIN_IN_C.get(example.stem)
    return [str(example), *([str(example.with_name(main))] if main else [])]


@pytest.mark.parametrize(("example", "release"), CASES)
def test_an_example_is_one_program_for_gpus_and_the_cpu_and_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Path, release: int
) -> None:
    program = tmp_path / "program"
    archs = ("sm_80",) if example.stem in FOR_NVIDIA else ("sm_80", "gfx90a")
    offload_archs = f"--offload-arch={','.join((*archs, 'host'))}"
    flags = (f"--llvm={release}", offload_archs, *inputs_of(example))
    # In this process: one of its own for each call would load the driver again.
    ended: list[int] = []
    monkeypatch.setattr("mlir_offload.driver.cli._leave", ended.append)
    main([*flags, "-o", str(program)])
    assert ended == [0]
    held = [kernel for item in read_objects(program) for kernel in held_kernels(item)]
    by_arch = [{kernel.kernel for kernel in held if kernel.arch == arch} for arch in archs]
    assert all(kernels == by_arch[0] for kernels in by_arch)
    assert bool(by_arch[0]) == (example.stem not in WITHOUT_KERNELS)
    variables = {**os.environ, "MLIR_OFFLOAD_DEVICE": "host"}
    result = subprocess.run([program], env=variables, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    assert "ok" in result.stdout
