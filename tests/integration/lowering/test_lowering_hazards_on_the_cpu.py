"""The corrected hazards, run on the CPU: the values are right and nothing overflows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.toolchain.process import Command, Completed, ProcessRunner

INPUTS = Path(__file__).resolve().parent.parent / "inputs"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("program", "output"),
    [
        # Each launch in a loop left its arguments on the stack: a stack overflow.
        ("many_launches.mlir", ""),
        ("mixed_async_values.mlir", "9.000000 3.000000 3.000000 3.000000\n"),
    ],
    ids=["launches in loops", "mixed synchronous and asynchronous"],
)
def test_a_program_gives_the_right_values(
    mlir_offload: list[str], program: str, output: str, release: int
) -> None:
    result = run(mlir_offload, program, release)

    assert result.returncode == 0, result.stderr
    assert result.stdout == output


def run(mlir_offload: list[str], program: str, release: int) -> Completed:
    options = ("run", f"--llvm={release}", "--offload-arch=host", str(INPUTS / program))
    return ProcessRunner().run(Command((*mlir_offload, *options)))
