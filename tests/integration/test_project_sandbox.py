"""Each step of a project runs where nothing is but what it declares: an undeclared read fails.

The directory of the project holds the declared files alone then; what it held before lies under another
name. A name of a file that is absolute finds nothing else either.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from support.cuda_tools import cuda_root
from support.project import run_in

from mlir_offload.driver.option.config import find_files
from mlir_offload.driver.option.subcommand import every_subcommand
from mlir_offload.driver.project.file import read_project
from mlir_offload.driver.project.graph import ProjectGraph, plan_project
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.project.tools import ToolFinder
from mlir_offload.driver.system.depfile import read_prerequisites
from mlir_offload.toolchain.process import ProcessRunner

pytestmark = pytest.mark.llvm(22)
BIN = Path("/usr/lib/llvm-22/bin")
MANIFEST = """\
archs: [sm_90, host]
flags:
  - --llvm=22
  - --pipeline=p.yaml
  - --device-lib=cuda={absolute}/lib/cuda.bc
  - --device-lib=host=lib/host.bc
modules:
  - calls.mlir
  - {{file: sub/attached.mlir, archs: sm_90, flags: -fno-gpu-rdc}}
  - {{file: rdc.mlir, archs: sm_90, flags: -fgpu-rdc}}
targets:
  libpart.a: {{kind: static, inputs: [part.c]}}
  app:
    inputs: [calls.mlir, sub/attached.mlir, main.c, code.ll, libpart.a]
    flags: [-Llib, -lq, "-Wl,--version-script=app.map,more.o"]
"""
# Those options of the compiler that name a file to read, or where files are looked for: all are above.
# --config= decides about the flags of the steps, before they are planned.
NAMING = {
    *("--config=", "--device-lib=", "--pipeline=", "-I", "-L", "-l"),
    *("-isystem", "-iquote", "-idirafter", "-include"),
}
# A plugin cannot be made without the headers of MLIR, which no package of the tests has.
UNTRIED = {"--load-dialect-plugin=", "--load-pass-plugin="}
VARIANT = """\
directory: build
variants:
  v: {flags: [-Iinclude, -isystem, sys, -iquote, quoted, -idirafter, after, -include, first.h]}
"""
KERNELS = """\
module attributes {{gpu.container_module}} {{
  gpu.module @k{attribute} {{
    llvm.func @twice(f32) -> f32
    gpu.func @run_{name}(%p: !llvm.ptr) kernel {{
      %v = llvm.load %p : !llvm.ptr -> f32
      %w = llvm.call @twice(%v) : (f32) -> f32
      llvm.store %w, %p : f32, !llvm.ptr
      gpu.return
    }}
  }}
  func.func @{name}(%p: !llvm.ptr) attributes {{llvm.emit_c_interface}} {{
    %c1 = arith.constant 1 : index
    gpu.launch_func @k::@run_{name} blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%p : !llvm.ptr)
    return
  }}
}}
"""
TWICE = "float twice(float x) { return 2 * x; }\n"
CUDA = (
    *("--target=nvptx64-nvidia-cuda", "-march=sm_80", "-nogpulib"),
    f"--cuda-path={cuda_root()}",
)
NEVER = "int never(void) { return 1; }\n"


def clang(folder: Path, text: str, output: str, *options: str) -> None:
    argv: list[str | Path] = [
        BIN / "clang",
        "-O2",
        "-c",
        *options,
        "-x",
        "c",
        "-",
        "-o",
        folder / output,
    ]
    subprocess.run(argv, input=text, text=True, check=True)


def write_everything(folder: Path) -> None:
    """Write a project in which every option that can name a file does."""
    for name in ("lib", "sub", "include", "sys", "quoted", "after"):
        (folder / name).mkdir(parents=True)
    (folder / "offload.yaml").write_text(MANIFEST.format(absolute=folder) + VARIANT)
    (folder / "p.yaml").write_text("passes: [canonicalize]\n")
    attached = ' [#nvvm.target<chip = "sm_90", link = ["part.bc"]>]'
    for name, attribute in (("calls", ""), ("sub/attached", attached), ("rdc", "")):
        text = KERNELS.format(name=Path(name).name, attribute=attribute)
        (folder / f"{name}.mlir").write_text(text)
    clang(folder, TWICE, "lib/cuda.bc", "-emit-llvm", *CUDA)
    clang(folder, TWICE, "sub/part.bc", "-emit-llvm", *CUDA)
    clang(folder, TWICE, "lib/host.bc", "-emit-llvm")
    clang(folder, NEVER, "more.o")
    clang(folder, "int q(void) { return 0; }\n", "lib/q.o")
    subprocess.run(("ar", "rc", "lib/libq.a", "lib/q.o"), cwd=folder, check=True)
    (folder / "include" / "n.h").write_text("int part(void); int q(void); int code(void);\n")
    for name, macro in (("sys/s.h", "S"), ("quoted/u.h", "U"), ("after/a.h", "A")):
        (folder / name).write_text(f"#define {macro} 0\n")
    (folder / "first.h").write_text("#define FIRST 0\n")
    (folder / "part.c").write_text('#include "n.h"\nint part(void) { return 0; }\n')
    (folder / "main.c").write_text(
        '#include "n.h"\n#include "u.h"\n#include <s.h>\n#include <a.h>\n'
        "int main(void) { return part() + q() + code() + S + U + A + FIRST; }\n"
    )
    (folder / "code.ll").write_text("define i32 @code() {\n  ret i32 0\n}\n")
    (folder / "app.map").write_text("{ local: never; };\n")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("sandbox") / "project"
    write_everything(folder)
    run_in(folder, [*mlir_offload, "trust"])
    done = run_in(folder, [*mlir_offload, "build"])
    assert done.returncode == 0, done.stderr
    return folder


def graph_of(folder: Path) -> ProjectGraph:
    project = read_project(folder / "offload.yaml")
    with contextlib.chdir(folder):
        return plan_project(project, ToolFinder(ProcessRunner(), find_files((), {}, folder)))


def declared(step: ProjectStep, whole: Path) -> Iterator[PurePosixPath]:
    """Yield what a step declares: before it runs, and in its dependency file."""
    yield from step.action.reads
    if step.action.depfile is not None:
        text = (whole / step.action.depfile).read_text()
        yield from map(PurePosixPath, read_prerequisites(text))


@contextlib.contextmanager
def only_declared(step: ProjectStep, folder: Path, whole: Path) -> Iterator[None]:
    """Give the project's place to the files of one step."""
    folder.mkdir()
    try:
        for path in declared(step, whole):
            place = folder / path
            if not place.is_relative_to(folder):
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(whole / place.relative_to(folder), place)
        for path in step.action.outputs:
            (folder / path.parent).mkdir(parents=True, exist_ok=True)
        yield
    finally:
        shutil.rmtree(folder)


def test_every_option_that_names_a_file_is_in_this_project() -> None:
    kinds = {"input", "folder", "library", "pipeline", "keyed"}
    rows = every_subcommand()[""].rows
    naming = {name for row in rows if row.path in kinds for name in row.names}
    assert naming == NAMING | UNTRIED


def test_a_step_makes_the_same_of_what_it_declares_alone(
    built: Path, mlir_offload: list[str]
) -> None:
    graph, whole = graph_of(built), built.with_name("whole")
    assert {step.kind for step in graph.steps} == {
        *("split", "device", "join", "source", "archive", "link")
    }
    built.rename(whole)
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    try:
        for step in (*graph.steps, *(step.whole() for step in graph.steps if step.whole)):
            with only_declared(step, built, whole):
                done = subprocess.run(
                    [*mlir_offload, *step.action.arguments],
                    cwd=built,
                    env=environment | dict(step.action.environment),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, f"{step.label}: {done.stderr}"
                for output in step.action.outputs:
                    same = (built / output).read_bytes() == (whole / output).read_bytes()
                    assert same, f"{step.label}: {output}"
    finally:
        whole.rename(built)


def test_the_sandbox_finds_an_undeclared_read(built: Path, mlir_offload: list[str]) -> None:
    whole = built.with_name("whole")
    step = next(step for step in graph_of(built).steps if step.kind == "split")
    built.rename(whole)
    try:
        with only_declared(step, built, whole):
            (built / "p.yaml").unlink()
            done = run_in(built, [*mlir_offload, *step.action.arguments])
            assert done.returncode != 0
            assert "p.yaml" in done.stderr
    finally:
        whole.rename(built)
