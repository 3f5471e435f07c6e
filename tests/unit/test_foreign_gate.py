"""The gate with upstream's programs: parsing a program's results, and detecting regressions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from foreign.device_function import cut_functions
from foreign.program import Program, read_program
from foreign.result import NO, YES, Result, parse_row, regressions, render_row
from foreign.table import compare, read_page, render_page

GOOD = Result("GPU/CUDA/a.mlir", "host", YES, YES, YES, YES, "0")


def program(tmp_path: Path, *lines: str) -> Program:
    path = tmp_path / "a.mlir"
    path.write_text("\n".join(lines) + "\nfunc.func @main() {\n")
    return read_program(path, "a.mlir")


def test_run_lines_tell_pipeline_architecture_and_checks(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "// RUN: mlir-opt %s -transform-interpreter \\",
        '// RUN:  -gpu-lower-to-nvvm-pipeline="cubin-chip=sm_90a opt-level=3" \\',
        "// RUN: | mlir-runner --entry-point-result=void 2>&1 \\",
        "// RUN: | FileCheck %s --check-prefixes=A,B",
        "// CHECK: Assertion `x` failed",
    )
    assert (found.pipeline, found.nvidia) == ("transform-interpreter", "sm_90a")
    assert found.prefixes == ("A", "B")
    assert (found.is_run, found.has_main, found.merges_stderr, found.fails) == (True,) * 4


def test_only_what_the_program_prints_is_checked(tmp_path: Path) -> None:
    found = program(tmp_path, "// RUN: mlir-opt %s | FileCheck %s")
    assert (found.is_run, found.prefixes, found.pipeline, found.nvidia) == (False, (), "", "sm_90")


def test_definitions_are_filled_in(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        '// DEFINE: %{compile} = mlir-opt %s --sparsifier="enable-gpu-libgen gpu-chip=sm_80',
        "// DEFINE: %{run} = mlir-runner \\",
        "// DEFINE:  --e main | FileCheck %s",
        '// RUN: %{compile} enable-runtime-library=true" | %{run}',
    )
    assert "sparsification-and-bufferization{enable-gpu-libgen}" in found.pipeline
    assert (found.is_run, found.prefixes) == (True, ("CHECK",))


def test_functions_of_a_conversion_test_become_device_functions() -> None:
    text = """// RUN: mlir-opt %s -split-input-file
#map = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func @first
func.func @first(%a: f32) {
  return
}
// -----
!t = !nvgpu.mbarrier.token
func.func private @only_declared(f32)
func.func @second() {
  // CHECK: x
  return
}
"""
    found = dict(cut_functions(text))
    assert list(found) == ["first", "second"]
    first = "#map = affine_map<(d0) -> (d0)>\ngpu.module @m {\nfunc.func @first(%a: f32) {\n  return\n}\n}\n"
    assert found["first"] == first
    assert found["second"].startswith(
        "!t = !nvgpu.mbarrier.token\ngpu.module @m {\nfunc.func @second"
    )


def test_a_test_of_sparse_code_generation_names_its_pipeline(tmp_path: Path) -> None:
    loops = '// RUN: mlir-opt %s --sparsification="parallelization-strategy=dense-outer-loop" --sparse-gpu-codegen'
    library = '// RUN: mlir-opt %s --sparse-gpu-codegen="num-threads=0" | FileCheck %s'
    assert "{parallelization-strategy=dense-outer-loop}" in program(tmp_path, loops).pipeline
    assert "{enable-gpu-libgen}" in program(tmp_path, library).pipeline


def test_a_page_is_read_as_it_was_written(tmp_path: Path) -> None:
    bad = replace(GOOD, target="sm_90", linked=NO, reason="a | b")
    page = tmp_path / "page.md"
    page.write_text(render_page("22.1.8", [bad, GOOD]))
    assert read_page(page) == {GOOD.key: GOOD, bad.key: bad}
    assert "| host | 1 | 1 | 1 | 1 |" in page.read_text()
    assert parse_row(render_row(bad)) == bad


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (GOOD, []),
        (replace(GOOD, checked=NO), ["checked"]),
        (replace(GOOD, status="70"), ["status"]),
        (replace(GOOD, status="70 (expected)"), []),
        (replace(GOOD, linked=NO, verified="-", ran="-", checked="-", status="-"),
         ["linked", "verified", "ran", "checked", "status"]),
    ],
)  # fmt: skip
def test_a_step_that_no_longer_succeeds_is_worse(found: Result, lost: list[str]) -> None:
    assert regressions(GOOD, found) == lost
    worse, other = compare({GOOD.key: GOOD}, [found])
    assert bool(worse) == bool(lost)
    assert bool(other) == (not lost and found != GOOD)
    assert regressions(replace(found, linked=NO), GOOD) == []
