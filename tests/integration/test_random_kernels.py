"""Random kernels with barriers on the CPU: by strips, by rows, or on fibers, they compute the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.operation_probe import Probe
from support.random_kernel import RandomKernel, computed, program_of, random_kernel
from support.random_lane_run import LaneRun
from support.random_lane_text import LaneWriter
from support.random_lanes import random_lane_kernel
from support.random_program import caller_of, read_numbers
from support.random_special import as_of_llvm_19

# More of them are run by giving another range; these take most ways through the code that cuts kernels.
SEEDS = {19: range(900, 904), 22: range(916, 921)}
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


# Runs the compiler as where LLVM was built without LLVM_BUILD_LLVM_DYLIB.
WITHOUT_LIBRARY = """
import sys
from mlir_offload.toolchain import llvm
llvm.find_llvm_library = lambda prefix, major: None
from mlir_offload.driver.cli import main
main(sys.argv[1:])
"""

# Runs the compiler so that kernels are written for rows of threads, also where strips are faster.
BY_ROWS = """
import sys
from mlir_offload.driver.cli import main
from mlir_offload.driver.kind import cpu
from mlir_offload.toolchain.process import Command
made = cpu.cpu_collapse_command
cpu.cpu_collapse_command = lambda *given: Command((*made(*given).argv, "--lanes", "1024"))
main(sys.argv[1:])
"""
# In these LLVM loaded too early what a thread had stored, or values shared memory that both were needed in.
ROW_SEEDS = {19: (2136,), 22: (2009, 2017, 3124)}


@pytest.mark.parametrize("release", RELEASES)
def test_kernels_by_rows_compute_what_is_written(release: int, tmp_path: Path) -> None:
    compiler = [sys.executable, "-c", BY_ROWS]
    assert _compare(compiler, release, ROW_SEEDS[release], tmp_path) == ""


@pytest.mark.parametrize("release", RELEASES)
def test_kernels_with_barriers_compute_what_is_written(
    release: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    said = _compare(mlir_offload, release, SEEDS[release], tmp_path)
    assert "libLLVM" not in said


# Kernels with subgroup operations, exchanges, atomics, early returns and loops with two exits. In 1043, LLVM 19
# took 0 for the maximum of 0 and NaN in f16.
LANE_SEEDS = {19: (1000, 1001, 1002, 1043), 22: range(1003, 1007)}
WAYS = {
    "strips": "from mlir_offload.driver.cli import main\nimport sys\nmain(sys.argv[1:])\n",
    "rows": BY_ROWS,
    "fibers": WITHOUT_LIBRARY,
}


@pytest.mark.llvm(22)
@pytest.mark.parametrize("lanes", [16, 64])
def test_kernels_in_strips_of_any_length_compute_what_is_written(
    lanes: int, tmp_path: Path
) -> None:
    kernels = [
        random_lane_kernel(f"k{s}", s, has_clusters=True, has_subgroups=False)
        for s in range(1010, 1013)
    ]
    compiler = [sys.executable, "-c", BY_ROWS.replace('"1024"', f'"{lanes}"')]
    given, _ = _results(compiler, 22, kernels, program_of(kernels, LaneWriter), tmp_path)
    for kernel in kernels:
        threads = Probe(kernel.name, (), (kernel.block,), kernel.grid).threads(kernel.block)
        assert given[kernel.name] == computed(kernel, threads, LaneRun), kernel


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("release", RELEASES)
def test_kernels_with_subgroups_compute_what_is_written(
    release: int, way: str, tmp_path: Path
) -> None:
    seeds = LANE_SEEDS[release]
    kernels = [random_lane_kernel(f"k{s}", s, has_clusters=release > 19) for s in seeds]
    compiler = [sys.executable, "-c", WAYS[way]]
    text = program_of(kernels, LaneWriter)
    text = text if release > 19 else as_of_llvm_19(text)
    given, _ = _results(compiler, release, kernels, text, tmp_path)
    for kernel in kernels:
        threads = Probe(kernel.name, (), (kernel.block,), kernel.grid).threads(kernel.block)
        assert given[kernel.name] == computed(kernel, threads, LaneRun), kernel


@pytest.mark.llvm(22)
def test_without_libllvm_they_compute_the_same_and_a_note_names_the_package(tmp_path: Path) -> None:
    compiler = [sys.executable, "-c", WITHOUT_LIBRARY]
    said = _compare(compiler, 22, range(902, 905), tmp_path)
    assert said == (
        "mlir-offload: note: LLVM 22 has no libLLVM here: kernels with barriers or subgroup operations are slow on"
        " the CPU (apt install libllvm22; from source, LLVM_BUILD_LLVM_DYLIB=ON)\n"
    )


def _compare(compiler: list[str], release: int, seeds: Sequence[int], tmp_path: Path) -> str:
    """Compare what kernels compute with what is written; return what the compiler prints."""
    # Every fourth one reduces over the block, for which threads need stacks.
    kernels = [random_kernel(f"k{seed}", seed, reduces=seed % 4 == 3) for seed in seeds]
    given, said = _results(compiler, release, kernels, program_of(kernels), tmp_path)
    for kernel in kernels:
        threads = Probe(kernel.name, (), (kernel.block,), kernel.grid).threads(kernel.block)
        assert given[kernel.name] == computed(kernel, threads), kernel
    return said


def _results(
    compiler: list[str], release: int, kernels: Sequence[RandomKernel], text: str, tmp_path: Path
) -> tuple[dict[str, list[int]], str]:
    """Return the results of the kernels in a program, and what the compiler prints."""
    source, caller, program = (tmp_path / name for name in ("random.mlir", "caller.c", "program"))
    source.write_text(text)
    caller.write_text(caller_of(kernels))
    flags = (f"--llvm={release}", "--offload-arch=host", "-O1", source, caller, "-o", program)
    done = subprocess.run(
        [*compiler, *map(str, flags)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return read_numbers(printed), done.stderr
