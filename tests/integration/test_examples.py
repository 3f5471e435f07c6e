"""Every example compiled, run on the CPU, and linked for two GPUs, with every release that lowers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.coverage import held_kernels
from mlir_offload.offload.objects import read_objects

ROOT = Path(__file__).resolve().parents[2]
# These functions have callers in three languages: test_calling.
CALLED = {"calling"}
EXAMPLES = [
    path for path in sorted((ROOT / "docs" / "examples").glob("*.mlir")) if path.stem not in CALLED
]
RELEASES = [
    pytest.param(major, marks=pytest.mark.llvm(major), id=f"llvm{major}") for major in (19, 22)
]
# These are called from C, or hold nothing for a GPU.
WITH_MAIN_IN_C = {"square": "main.c"}
WITHOUT_KERNELS = {"plain"}


def inputs_of(example: Path) -> list[str]:
    main = WITH_MAIN_IN_C.get(example.stem)
    return [str(example), *([str(example.with_name(main))] if main else [])]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_on_the_cpu_and_finds_its_result_right(
    mlir_offload: list[str], example: Path, release: int
) -> None:
    result = subprocess.run(
        [*mlir_offload, "run", f"--llvm={release}", "--offload-arch=host", *inputs_of(example)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr + result.stdout
    assert result.stderr == ""
    assert "ok" in result.stdout


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_links_for_two_gpus_with_every_kernel_in_both_images(
    mlir_offload: list[str], tmp_path: Path, example: Path, release: int
) -> None:
    program = tmp_path / "program"
    subprocess.run(
        [
            *mlir_offload,
            f"--llvm={release}",
            "--offload-arch=sm_80,sm_90",
            *inputs_of(example),
            "-o",
            program,
        ],
        check=True,
    )
    held = [kernel for item in read_objects(program) for kernel in held_kernels(item)]
    by_arch = {
        arch: {kernel.kernel for kernel in held if kernel.arch == arch}
        for arch in ("sm_80", "sm_90")
    }
    assert by_arch["sm_80"] == by_arch["sm_90"]
    assert bool(by_arch["sm_80"]) == (example.stem not in WITHOUT_KERNELS)
