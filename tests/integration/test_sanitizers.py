"""Faults of kernels that the sanitizers find on the CPU, at their lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "sanitizer"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MISSING = "// gpu.barrier is missing here."


def line_of(source: Path, text: str) -> int:
    lines = source.read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


def run(command: list[str], directory: Path, source: Path, *options: str) -> tuple[int, str]:
    program = directory / "program"
    subprocess.run(
        [*command, *options, str(source), "-o", str(program)], check=True, capture_output=True
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "release",
    # 22 brings its own library here, 19 takes that of GCC.
    [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)],
)
def test_a_store_out_of_bounds_is_reported_at_its_line(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    source = PROGRAMS / "out_of_bounds.mlir"
    options = (f"--llvm={release}", "-fsanitize=address")
    status, said = run(mlir_offload, tmp_path, source, *options)
    assert status == 1
    assert "AddressSanitizer: heap-buffer-overflow" in said
    assert f"{source.name}:{line_of(source, 'memref.store')}" in said


@pytest.mark.llvm(22)
def test_accesses_of_the_host_and_of_kernels_with_stacks_of_their_own_are_checked(
    mlir_offload: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What other threads than the first one keep for the next launch is not a leak.
    monkeypatch.setenv("MLIR_OFFLOAD_NUM_THREADS", "4")
    source = tmp_path / "host.mlir"
    source.write_text(
        "func.func @main() -> i32 {\n"
        "  %n = arith.constant 8 : index\n"
        "  %v = arith.constant 1 : i32\n"
        "  %m = memref.alloc() : memref<8xi32>\n"
        "  memref.store %v, %m[%n] : memref<8xi32>\n"
        "  %r = memref.load %m[%n] : memref<8xi32>\n"
        "  return %r : i32\n"
        "}\n"
    )
    status, said = run(mlir_offload, tmp_path, source, "-fsanitize=address", "-O0")
    assert (status, "host.mlir:5" in said) == (1, True), said
    status, said = run(mlir_offload, tmp_path, EXAMPLES / "reduction.mlir", "-fsanitize=address")
    assert status == 0, said
    assert "ERROR" not in said


@pytest.mark.llvm(22)
def test_a_missing_barrier_is_a_race_between_two_work_items_at_their_lines(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = PROGRAMS / "missing_barrier.mlir"
    status, said = run(mlir_offload, tmp_path, source, "-fsanitize=thread")
    assert status == 66
    assert "ThreadSanitizer: data race" in said
    assert f"{source.name}:{line_of(source, 'memref.store %v')}" in said
    assert f"{source.name}:{line_of(source, 'memref.load %s')}" in said
    assert "block: [0,0,0], thread: [" in said


@pytest.mark.llvm(22)
@pytest.mark.parametrize("name", ["missing_barrier", "histogram", "two_modules", "reduction"])
def test_a_right_program_is_silent_under_thread_sanitizer(
    mlir_offload: list[str], tmp_path: Path, name: str
) -> None:
    source = EXAMPLES / f"{name}.mlir"
    if name == "missing_barrier":
        source = tmp_path / f"{name}.mlir"
        text = (PROGRAMS / f"{name}.mlir").read_text()
        assert MISSING in text
        source.write_text(text.replace(MISSING, "gpu.barrier"))
    status, said = run(mlir_offload, tmp_path, source, "-fsanitize=thread")
    assert status == 0, said
    assert "WARNING" not in said


@pytest.mark.llvm(22)
def test_a_cached_step_instruments_too(mlir_offload: list[str], tmp_path: Path) -> None:
    source = PROGRAMS / "out_of_bounds.mlir"
    options = ("--launcher=env", "-fsanitize=address")
    status, said = run(mlir_offload, tmp_path, source, *options)
    assert status == 1
    assert f"{source.name}:{line_of(source, 'memref.store')}" in said


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-fsanitize=memory"], "is not supported for programs with kernels"),
        (["-fsanitize=thread", "--offload-arch=sm_90"], "none for a GPU"),
        (["-fsanitize=address,thread"], "use address or thread"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_no_sanitizer_serves_is_refused(
    mlir_offload: list[str], tmp_path: Path, options: list[str], said: str
) -> None:
    source = PROGRAMS / "out_of_bounds.mlir"
    done = subprocess.run(
        [*mlir_offload, *options, str(source), "-o", str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "a").exists()
