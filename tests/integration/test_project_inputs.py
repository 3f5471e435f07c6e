"""What decides what a step of a project makes is an input of it, whatever names it: else it is stale."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root
from support.project import call_by, run_in, write_project

pytestmark = pytest.mark.llvm(22)
CLANG = "/usr/lib/llvm-22/bin/clang"
CALLS = """\
gpu.module @k {
  llvm.func @twice(f32) -> f32
  gpu.func @run(%p: !llvm.ptr) kernel {
    %v = llvm.load %p : !llvm.ptr -> f32
    %w = llvm.call @twice(%v) : (f32) -> f32
    llvm.store %w, %p : f32, !llvm.ptr
    gpu.return
  }
}
"""
ALONE = CALLS.replace("  llvm.func @twice(f32) -> f32\n", "").replace(
    "llvm.call @twice(%v) : (f32) -> f32", "llvm.fadd %v, %v : f32"
)
MANIFEST = """\
archs: sm_80
flags: --llvm=22 --device-code=bitcode -g --pipeline=p.yaml --device-lib=cuda=lib/twice.bc
modules: [calls.mlir, alone.mlir]
"""
PIPELINE = "passes: [{passes}]\n"


def project_in(folder: Path) -> Path:
    write_project(folder, MANIFEST, modules=0)
    (folder / "calls.mlir").write_text(CALLS)
    (folder / "alone.mlir").write_text(ALONE)
    (folder / "p.yaml").write_text(PIPELINE.format(passes="canonicalize"))
    (folder / "lib").mkdir()
    write_library(folder / "lib" / "twice.bc", 2)
    return folder


def write_library(output: Path, factor: int) -> None:
    cuda = f"--cuda-path={cuda_root()}"
    device = ("--target=nvptx64-nvidia-cuda", "-march=sm_80", cuda, "-nogpulib", "-O2")
    argv = (CLANG, *device, "-c", "-emit-llvm", "-x", "c", "-", "-o", str(output))
    text = f"float twice(float x) {{ return {factor} * x; }}\n"
    subprocess.run(argv, input=text, text=True, check=True)


def ran(folder: Path, command: list[str], *options: str, **environment: str) -> set[str]:
    """Build; return the steps that ran, by kind and module."""
    done = run_in(folder, [*command, "build", "-j1", "--report=r.json", *options], environment)
    assert done.returncode == 0, done.stderr
    steps = json.loads((folder / "r.json").read_text())["steps"]
    return {f"{s['kind']} {s['module']}" for s in steps if s["outcome"] == "built"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> Path:
    folder = project_in(tmp_path_factory.mktemp("built"))
    ran(folder, mlir_offload)
    return folder


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def change_pipeline(folder: Path) -> None:
    (folder / "p.yaml").write_text(PIPELINE.format(passes="canonicalize, canonicalize"))


def change_library(folder: Path) -> None:
    write_library(folder / "lib" / "twice.bc", 3)


def set_level(folder: Path) -> None:
    (folder / "mlir-offload.toml").write_text("opt-level = 0\n")


EVERY = {"calls.mlir", "alone.mlir"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # Neither changes the parts that were split off.
        (change_pipeline, {f"split {name}" for name in EVERY}),
        (change_library, {"device calls.mlir", "join calls.mlir"}),
        (set_level, {f"module {name}" for name in EVERY}),
    ],
)
def test_a_change_reaches_what_depends_on_it_and_nothing_else(
    change: Callable[[Path], None], expected: set[str], copy: Path, mlir_offload: list[str]
) -> None:
    change(copy)
    assert ran(copy, mlir_offload) == expected
    assert ran(copy, mlir_offload) == set()


def test_another_processor_compiles_every_module_again(
    copy: Path, mlir_offload: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLIR_OFFLOAD_MARCH", "x86-64-v2")
    assert ran(copy, mlir_offload) == {f"module {name}" for name in EVERY}
    assert ran(copy, mlir_offload) == set()


def test_a_wrong_pipeline_file_is_an_error_of_the_next_build(
    copy: Path, mlir_offload: list[str]
) -> None:
    (copy / "p.yaml").write_text(PIPELINE.format(passes="no-such-pass"))
    done = run_in(copy, [*mlir_offload, "build"])
    assert done.returncode != 0
    assert "no-such-pass" in done.stderr


def test_the_time_in_line_tables_is_an_input(copy: Path, mlir_offload: list[str]) -> None:
    kinds = {name.split()[0] for name in ran(copy, mlir_offload, SOURCE_DATE_EPOCH="1000")}
    assert kinds == {"device"}
    assert ran(copy, mlir_offload, SOURCE_DATE_EPOCH="1000") == set()


def test_a_project_in_another_directory_names_files_from_its_own(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = project_in(tmp_path / "below")
    done = run_in(
        tmp_path, [*mlir_offload, "build", "-j1", "below/offload.yaml", "--report=r.json"]
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.json").is_file()
    assert (folder / "build" / "default" / "calls.mlir.o").is_file()


@pytest.mark.parametrize("form", ["ninja", "make"])
def test_other_executors_see_the_same_inputs(
    form: str, copy: Path, mlir_offload: list[str]
) -> None:
    program = shutil.which(form)
    if program is None:
        pytest.skip(f"{form} is not installed")
    shutil.rmtree(copy / "build")
    assert run_in(copy, [*mlir_offload, "build", f"--emit={form}"]).returncode == 0
    options = ["-d", "explain"] if form == "ninja" else ["--debug=b"]
    file = f"build/{'build.ninja' if form == 'ninja' else 'Makefile'}"
    call_by(mlir_offload, copy / file)
    command = [program, "-f", file]
    assert run_in(copy, command).returncode == 0
    change_library(copy)
    done = run_in(copy, [*command, *options])
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "calls.mlir.sm_80.images" in said
    images = (copy / "build" / "default" / "alone.mlir.sm_80.images").stat().st_mtime_ns
    assert images < (copy / "lib" / "twice.bc").stat().st_mtime_ns
    change_pipeline(copy)
    assert "split" in run_in(copy, [*command, *(["-v"] if form == "ninja" else [])]).stdout


def test_a_library_behind_l_is_an_input_of_the_link(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    manifest = (
        "archs: host\nflags: --llvm=22\nmodules: []\n"
        "targets: {app: {inputs: [main.c], flags: -Lfirst -Llib -lq}}\n"
    )
    folder = write_project(tmp_path, manifest, modules=0)
    (folder / "main.c").write_text("int q(void); int main(void) { return q(); }\n")
    (folder / "lib").mkdir()
    (folder / "first").mkdir()
    # The last one lies where the linker looks first.
    for status, place in ((3, "lib"), (4, "lib"), (5, "first")):
        source = f"int q(void) {{ return {status}; }}\n"
        made = subprocess.run(
            (CLANG, "-c", "-x", "c", "-", "-o", "q.o"),
            input=source,
            text=True,
            cwd=folder,
            check=True,
        )
        assert made.returncode == 0
        (folder / place / "libq.a").unlink(missing_ok=True)
        subprocess.run(("ar", "rc", f"{place}/libq.a", "q.o"), cwd=folder, check=True)
        assert "link app" in ran(folder, mlir_offload)
        assert run_in(folder, ["build/default/bin/app"]).returncode == status
    assert ran(folder, mlir_offload) == set()


@pytest.mark.parametrize("march", ["", "x86-64-v3"])
def test_a_processor_of_the_environment_takes_the_place_of_that_of_this_machine(
    march: str, tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path / "p", "archs: host\nmodules: [m0.mlir]\n", modules=1)
    words = [*mlir_offload, "build", "-n", "-v"]
    done = run_in(folder, words, {"MLIR_OFFLOAD_MARCH": march})
    lines = done.stderr.splitlines()
    steps = {line.split()[1]: line for line in lines if line.startswith("mlir-offload --")}
    assert (f" -march={march} " in steps["--device-step"]) == bool(march)
    identities = {name: line.rpartition("--toolchain-id=")[2] for name, line in steps.items()}
    # The same code is made on every machine then.
    assert (identities["--device-step"] == identities["--split-step"]) == bool(march)
