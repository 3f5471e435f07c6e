"""gdb in kernels on the CPU: where it stops, and what it shows there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.llvm(22), pytest.mark.llvm(19)]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
MATMUL, SAXPY = EXAMPLES / "matmul.mlir", EXAMPLES / "saxpy.mlir"
REDUCTION = EXAMPLES / "reduction.mlir"
# Kernels of the reduction that the test of another one does without, and their launches.
OTHER_KERNELS = re.compile(
    r"^  gpu\.func @(?:tree|all_reduce)\((?s:.*?)^  }\n"
    r"|^  gpu\.launch_func @kernels::@(?:tree|all_reduce) .*\n.*\n",
    re.MULTILINE,
)
# Operations that leave no instruction of their own: constants and the ends of regions.
NO_CODE = re.compile(r"arith\.constant|scf\.yield|^\s*(?://.*|[})].*)?$")


def built(command: Sequence[str], folder: Path, source: Path, *options: str) -> Path:
    program = folder / "app"
    call = [*command, "-g", "--offload-arch=host", *options, str(source), "-o", str(program)]
    subprocess.run(call, check=True)
    return program


def debugged(program: Path, *commands: str) -> str:
    """Return what gdb prints; each stop begins with a line like `matmul (...) at matmul.mlir:36`."""
    words = [word for command in commands for word in ("-ex", command)]
    call = ["gdb", "-batch", "-nx", *words, str(program)]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout


def line_of(source: Path, text: str) -> int:
    rows = source.read_text().splitlines()
    return 1 + next(number for number, row in enumerate(rows) if text in row)


def stops(output: str, name: str) -> list[tuple[str, int]]:
    """Return function and line of each stop."""
    found = re.findall(
        rf"^(?:.*breakpoint.*, )?(\w+) \(.*\) at {name}:(\d+)$",
        output,
        re.MULTILINE | re.IGNORECASE,
    )
    return [(function, int(line)) for function, line in found]


@pytest.mark.parametrize("release", [19, 22])
def test_unoptimised_gdb_stops_at_every_line_of_a_kernel_that_has_code(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    program = built(mlir_offload, tmp_path, MATMUL, "-O0", f"--llvm={release}")
    rows = MATMUL.read_text().splitlines()
    first, last = line_of(MATMUL, "%tx = gpu.thread_id x"), line_of(MATMUL, "gpu.return")
    lines = [n for n in range(first, last + 1) if not NO_CODE.search(rows[n - 1])]
    breaks = [f"tbreak matmul.mlir:{line}" for line in lines]
    output = debugged(program, *breaks, "run", *["continue"] * len(lines))
    assert stops(output, "matmul.mlir") == [("matmul", line) for line in lines], output


@pytest.mark.parametrize("release", [19, 22])
def test_unoptimised_gdb_shows_arguments_and_values_of_a_work_item(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    program = built(mlir_offload, tmp_path, SAXPY, "-O0", f"--llvm={release}")
    at = line_of(SAXPY, "memref.store %sum, %y")
    shown = (
        "n",
        "a",
        "x.size0",
        "x.aligned[3]",
        "i",
        "inside",
        "xi",
        "yi",
        "sum == scaled + decay",
    )
    output = debugged(
        program,
        f"break saxpy.mlir:{at} -force-condition if i == 300",
        "run 1024",
        *(f"output {name}" if n % 2 == 0 else "echo |" for name in shown for n in range(2)),
    )
    assert f"saxpy.mlir:{at}" in output
    n, a, size, third, i, inside, xi, yi, is_sum = output.splitlines()[-1].rstrip("|").split("|")
    assert (n, size, i, inside, is_sum) == ("1024", "1024", "300", "true", "1"), output
    assert float(third) == 3 / 1024
    assert float(xi) == 300 / 1024
    assert float(a) > 0
    assert float(yi) >= 0


@pytest.mark.parametrize("processor", ["x86-64", "native"])
def test_optimised_gdb_stops_in_the_kernel_first_whatever_loops_the_compiler_made(
    mlir_offload: list[str], tmp_path: Path, processor: str
) -> None:
    program = built(mlir_offload, tmp_path, MATMUL, f"-march={processor}")
    lines = [line_of(MATMUL, text) for text in ("memref.store %from_a", "memref.store %sum")]
    breaks = [f"tbreak matmul.mlir:{line}" for line in lines]
    output = debugged(program, *breaks, "run", "continue")
    assert stops(output, "matmul.mlir") == [("matmul", line) for line in lines], output


@pytest.mark.parametrize(("level", "release"), [("-O1", 22), ("-O2", 19)])
def test_optimised_gdb_stops_at_the_lines_of_a_kernel_that_is_collapsed(
    mlir_offload: list[str], tmp_path: Path, level: str, release: int
) -> None:
    source = tmp_path / REDUCTION.name
    source.write_text(OTHER_KERNELS.sub("", REDUCTION.read_text()))
    program = built(mlir_offload, tmp_path, source, level, f"--llvm={release}")
    rows = source.read_text().splitlines()
    first = line_of(source, "gpu.func @shuffles")
    shuffle = next(n for n, row in enumerate(rows, 1) if n > first and "gpu.shuffle" in row)
    inlined = line_of(source, "%value = memref.load")
    breaks = [f"tbreak reduction.mlir:{shuffle}", f"break reduction.mlir:{inlined}"]
    output = debugged(
        program, breaks[0], "run", "backtrace 1", breaks[1], "continue", "backtrace 2"
    )
    assert stops(output, "reduction.mlir")[0] == ("shuffles", shuffle), output
    frame = rf"#0 +own_share \(.*\) at reduction.mlir:{inlined}\n#1 .*(?:shuffles|blocks) "
    assert re.search(frame, output), output


def test_variables_of_a_front_end_are_never_shown_wrong_in_a_collapsed_kernel(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source = Path(__file__).parent / "inputs" / "debug_variables.mlir"
    stop = ("break variables.f90:7", "run", "info locals")
    names = ("lane_value", "linear_value", "uniform_value")
    collapsed = built(mlir_offload, tmp_path, source, "-O2", "--llvm=22")
    output = debugged(collapsed, "set breakpoint pending on", *stop)
    assert [f"{name} = <optimized out>" in output for name in names] == [True] * 3, output
