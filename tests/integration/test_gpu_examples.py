"""The examples, built once for every kind of device, executed without a GPU.

NVIDIA: an interpreter of the PTX. AMD: an interpreter of the linked IR, and of the first blocks of each kernel
also one of the machine code, which has to leave the same bytes. Threads run in order and in random ones; a data race,
an access outside of what was allocated, a divergent barrier, and memory of the device that the host touches end a
program.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.amd_emulator import WAVES, AmdGpu
from support.amd_launch import read_images, run_recorded
from support.cuda_emulator import CudaEmulator, run_program
from support.opencl import opencl_environment

from mlir_offload.offload.link.coverage import held_kernels
from mlir_offload.offload.link.objects import read_objects

DOCS = Path(__file__).resolve().parents[2] / "docs" / "examples"
# Without kernels, or called from other languages.
OTHERS = {"plain", "calling"}
EXAMPLES = sorted(path for path in DOCS.glob("*.mlir") if path.stem not in OTHERS)
CALLED_FROM_C = {"square": "main.c"}
ARGUMENTS = {"saxpy": ("4096",)}
# Lowered already.
FOR_NVIDIA = {"lowered"}
# Of some also the code of the other release.
TWICE = ("reduction", "two_modules")
# printf passes the host its text in ways that the interpreter of machine code does not have.
NOT_AS_MACHINE_CODE = {"printf"}
BLOCKS = 2
# How many units in the last place of 32 bits differ: machine code has another exp than the IR.
ROUNDED = {"saxpy": 1}
# In order, and in a random one.
SEEDS = (0, 1)
AMD_RUNS = [(arch, 0) for arch in WAVES] + [("gfx1100", 1)]
CASES = [
    pytest.param(example, release, marks=pytest.mark.llvm(release), id=f"{example.stem}-{release}")
    for release in (22, 19)
    for example in EXAMPLES
    if release == 22 or example.stem in TWICE
]


def _inputs(example: Path) -> list[str]:
    caller = CALLED_FROM_C.get(example.stem)
    return [str(example), *([str(DOCS / caller)] if caller else [])]


def _check_on_cuda(program: Path, example: Path) -> None:
    for seed in SEEDS:
        result = run_program(program, *ARGUMENTS.get(example.stem, ()), seed=seed)
        assert (result.returncode, result.stderr) == (0, ""), seed
        assert "ok" in result.stdout


@pytest.mark.parametrize(("example", "release"), CASES)
def test_an_example_finds_its_result_right_on_every_gpu(
    amd: AmdGpu, cuda_emulator: CudaEmulator, tmp_path: Path, example: Path, release: int
) -> None:
    program = tmp_path / "program"
    archs = () if example.stem in FOR_NVIDIA else tuple(WAVES)
    others = ("spirv64", "host") if release == 22 else ()
    options = cuda_emulator.options(is_kept=False)
    amd.build(release, ",".join(("sm_90", *archs, *others)), program, *options, *_inputs(example))
    _check_kernels(program, {"sm_90", *archs, *others} - {"host"})
    _check_on_cuda(program, example)
    if others:
        assert b"ok" in _run(program, "host")
        assert b"ok" in _run(program, "sycl", **opencl_environment())
    for arch, seed in AMD_RUNS if archs else ():
        record = tmp_path / arch
        record.mkdir(exist_ok=True)
        blocks = 0 if seed or example.stem in NOT_AS_MACHINE_CODE else BLOCKS
        arguments = ARGUMENTS.get(example.stem, ())
        ran = amd.run(program, *arguments, seed=seed, arch=arch, record=record, blocks=blocks)
        assert (ran.returncode, ran.stderr.decode()) == (0, ""), (arch, seed)
        assert b"ok" in ran.stdout
        _check_machine_code(program, arch, record, ROUNDED.get(example.stem, 0))


def _check_kernels(program: Path, archs: set[str]) -> None:
    """Check that the program has all of its kernels for each GPU."""
    held = [kernel for item in read_objects(program) for kernel in held_kernels(item)]
    by_arch = {arch: {one.kernel for one in held if one.arch == arch} for arch in archs}
    assert all(kernels == by_arch["sm_90"] != set() for kernels in by_arch.values())


def _run(program: Path, device: str, **environment: str) -> bytes:
    variables = {**os.environ, **environment, "MLIR_OFFLOAD_DEVICE": device}
    result = subprocess.run([program], env=variables, capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b""), result.stdout
    return result.stdout


def _check_machine_code(program: Path, arch: str, record: Path, tolerance: int) -> None:
    launches = sorted(record.glob("*.launch"))
    images = read_images(program, arch, WAVES[arch]) if launches else ()
    for launch in launches:
        other = run_recorded(images, launch, BLOCKS)
        wrong = [one for one in other if abs(one.wanted - one.found) > tolerance]
        assert wrong == [], (arch, launch.stem)
        launch.unlink()


@pytest.mark.llvm(22)
def test_an_example_runs_as_ptx_that_is_kept_for_later_gpus(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path
) -> None:
    program, example = tmp_path / "program", DOCS / "two_modules.mlir"
    flags = ("--llvm=22", "--offload-arch=sm_90", *cuda_emulator.options(is_kept=True))
    subprocess.run([*mlir_offload, *flags, "-o", str(program), *_inputs(example)], check=True)
    _check_on_cuda(program, example)
