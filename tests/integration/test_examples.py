"""Every example compiled, linked for several GPUs, run on the CPU and on an OpenCL device."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.opencl import opencl_environment

from mlir_offload.driver.cli import main
from mlir_offload.offload.link.coverage import held_kernels
from mlir_offload.offload.link.objects import read_objects

ROOT = Path(__file__).resolve().parents[2]
# These functions have callers in three languages: test_calling.
CALLED = {"calling"}
EXAMPLES = [
    path for path in sorted((ROOT / "docs" / "examples").glob("*.mlir")) if path.stem not in CALLED
]
RELEASES = [
    pytest.param(major, marks=pytest.mark.llvm(major), id=f"llvm{major}") for major in (19, 22)
]
ARCHS = {19: ("sm_80",), 22: ("sm_90", "spirv64")}
# These are called from C, or hold nothing for a GPU.
WITH_MAIN_IN_C = {"square": "main.c"}
WITHOUT_KERNELS = {"plain"}


def inputs_of(example: Path) -> list[str]:
    main = WITH_MAIN_IN_C.get(example.stem)
    return [str(example), *([str(example.with_name(main))] if main else [])]


def output_of(program: Path, device: str, **environment: str) -> str:
    """Return what a program prints on a device; it must find its result right, and complain of nothing."""
    variables = {**os.environ, **environment, "MLIR_OFFLOAD_DEVICE": device}
    result = subprocess.run([program], env=variables, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    return result.stdout


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_one_program_for_gpus_opencl_and_the_cpu_and_runs_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Path, release: int
) -> None:
    program, archs = tmp_path / "program", ARCHS[release]
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
    assert "ok" in output_of(program, "host")
    if "spirv64" in archs:
        assert "ok" in output_of(program, "sycl", **opencl_environment())
