"""The interpreter of PTX itself: its arithmetic against compiled host code, and the faults that end a program."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from support.cuda_emulator import FAULT, SOURCES, CudaEmulator, run_program

INPUTS = Path(__file__).parent / "inputs"
pytestmark = pytest.mark.llvm(22)


def _build(compiler: list[str], emulator: CudaEmulator, name: str, program: Path) -> Path:
    source = SOURCES / "programs" / f"{name}.cu"
    flags = ("--offload-arch=sm_90", "-nogpuinc", "-nogpulib", f"-I{INPUTS}")
    options = (*flags, *emulator.options(is_kept=False), "-o", str(program))
    subprocess.run([*compiler, str(source), *options], check=True)
    return program


def test_numbers_are_those_of_the_same_expressions_on_the_host(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path
) -> None:
    program = _build(mlir_offload, cuda_emulator, "arithmetic", tmp_path / "program")
    ran = run_program(program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "276 expressions, 0 wrong\n"


@pytest.fixture(scope="module")
def faults(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    program = tmp_path_factory.mktemp("faults") / "program"
    return _build(mlir_offload, cuda_emulator, "faults", program)


MESSAGES = {
    "beyond": "which is no memory of the device\n  st.global",
    "before": "which is no memory of the device\n  st.global",
    "misaligned": "misaligned access of 4 bytes",
    "null": "access of 4 bytes at 0x0, which is no memory of the device",
    "beyond_shared": "of workgroup memory, in which there is no variable",
    "beyond_parameter": "access of 2 bytes at 0x8 of parameters",
    "race": "of workgroup memory: write here, read by thread 31, and no barrier between",
    "race_of_writes": "of workgroup memory: write here, write by thread 0, and no barrier between",
    "race_in_a_warp": "of workgroup memory: write here, read by thread 15, and no barrier between",
    "race_in_memory": "of global memory of 256 bytes: write here, read by thread 31 of this block, and nothing",
    "race_of_blocks": "of global memory of 256 bytes: write here, write by thread 0 of another block, and nothing",
    "race_with_an_atomic_operation": "atomic operation here, write by thread 63 of another block, and nothing",
    "divergent": "divergent barrier: thread 48 of the block has ended without it",
    "divergent_in_a_warp": "divergent barrier: thread 0 of the same warp waits at bar.sync",
    "alone": "the block cannot go on: threads wait for others of their warp",
    "without_itself": "the mask 0x00000001 is without the lane 1 itself",
    "freed": "bytes into memory that was freed",
    "host_memory": "which is no memory of the device",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_ptx_does_not_define_ends_the_program_with_the_place(faults: Path, name: str) -> None:
    ran = run_program(faults, name)
    assert (ran.returncode, ran.stdout) == (FAULT, "")
    assert MESSAGES[name] in ran.stderr
    assert re.search(r"block \(\d, 0, 0\), thread \(", ran.stderr)


ORDERED = ("right", "ordered_in_a_warp", "ordered_in_memory", "ordered_by_atomic_operations")


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("seed", range(3))
def test_ordered_accesses_are_no_race(faults: Path, name: str, seed: int) -> None:
    ran = run_program(faults, name, seed=seed)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "launch 0, wait 0\n", "")


def test_the_host_cannot_touch_memory_of_the_device(faults: Path) -> None:
    assert run_program(faults, "touched").returncode == -signal.SIGSEGV


def test_work_is_done_when_something_waits_for_it_and_not_before(faults: Path) -> None:
    assert run_program(faults, "late").stdout == "600 -1 0 63\n"


def test_traps_and_assertions_are_errors_of_the_api(faults: Path) -> None:
    assert run_program(faults, "traps").stdout == "launch 0, wait 719\n"
    asserted = run_program(faults, "asserts")
    assert asserted.stdout == "launch 0, wait 710\n"
    line = "faults.cu:7: asserts: block: [0,0,0], thread: [{},0,0] Assertion `x < 5` failed.\n"
    assert asserted.stderr == line.format(5) + line.format(37)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing_barrier", "data race at byte"),
        ("out_of_bounds", "which is no memory of the device\n  st.global"),
    ],
)
def test_a_fault_of_an_mlir_program_is_found(
    mlir_offload: list[str], cuda_emulator: CudaEmulator, tmp_path: Path, name: str, message: str
) -> None:
    program, source = tmp_path / "program", INPUTS.parent / "sanitizer" / f"{name}.mlir"
    options = ("--offload-arch=sm_90", *cuda_emulator.options(is_kept=False), "-o", str(program))
    subprocess.run([*mlir_offload, str(source), *options], check=True)
    ran = run_program(program)
    assert ran.returncode == FAULT
    assert message in ran.stderr
