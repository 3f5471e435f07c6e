"""What a project links besides programs of MLIR and C: static libraries, and CUDA C++."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.project import call_by, digests, run_in, write_project

pytestmark = pytest.mark.llvm(22)
INPUTS = Path(__file__).parent / "inputs"
STATIC = """\
archs: host
flags: --llvm=22
modules: [m0.mlir]
targets:
  app: {inputs: [main.c, libm0.a]}
  libm0.a: {kind: static, inputs: [m0.mlir, more.cpp]}
"""
MAIN = """\
extern int length(void);
void _mlir_ciface_run0(long n);
int main(void) { _mlir_ciface_run0(length()); return 0; }
"""
# Exceptions are part of the library of C++.
TEXT = """\
extern "C" int length() { try { throw 3; } catch (int length) { return length; } }
"""
MIXED = """\
archs: sm_90
flags: --llvm=22 --cuda-path=CUDA -nocudainc -nocudalib
modules: [cuda_callee.mlir]
targets:
  app: {inputs: [cuda_caller.cu, cuda_callee.mlir]}
"""


def ran(folder: Path, command: list[str]) -> set[str]:
    done = run_in(folder, [*command, "build", "-j1", "--report=r.json"])
    assert done.returncode == 0, done.stderr
    steps = json.loads((folder / "r.json").read_text())["steps"]
    return {f"{step['kind']} {step['module']}" for step in steps if step["outcome"] == "built"}


def test_a_static_library_keeps_its_device_code_for_the_program(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    folder = write_project(tmp_path / "first", STATIC, modules=1)
    (folder / "main.c").write_text(MAIN)
    (folder / "more.cpp").write_text(TEXT)
    assert "archive libm0.a" in ran(folder, mlir_offload)
    assert run_in(folder, ["build/default/bin/app"]).stdout == "0\n0\n0\n"
    assert ran(folder, mlir_offload) == set()
    (folder / "more.cpp").write_text(TEXT.replace("3", "5"))
    assert ran(folder, mlir_offload) == {"source more.cpp", "archive libm0.a", "link app"}
    (folder / "more.cpp").write_text(TEXT)
    ran(folder, mlir_offload)
    for form, file in (("ninja", "build.ninja"), ("make", "Makefile")):
        if shutil.which(form) is None:
            continue
        other = Path(shutil.copytree(folder, tmp_path / form, ignore=lambda *_: {"build"}))
        assert run_in(other, [*mlir_offload, "build", f"--emit={form}"]).returncode == 0
        call_by(mlir_offload, other / "build" / file)
        done = run_in(other, [form, "-f", f"build/{file}"])
        assert done.returncode == 0, done.stdout + done.stderr
        endings = (".a", "app", ".o")
        assert digests(other / "build", *endings) == digests(folder / "build", *endings)


def test_cuda_cpp_and_mlir_launch_the_kernels_of_each_other(
    tmp_path: Path,
    mlir_offload: list[str],
    cuda_recorder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = write_project(
        tmp_path / "project", MIXED.replace("CUDA", str(cuda_recorder), 1), modules=0
    )
    for name in ("cuda_caller.cu", "cuda_callee.mlir", "cuda_bare.h"):
        shutil.copy(INPUTS / name, folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "not trusted" in run_in(folder, [*mlir_offload, "build"]).stderr
    run_in(folder, [*mlir_offload, "trust"])
    assert {"source cuda_caller.cu", "link app"} <= ran(folder, mlir_offload)
    said = run_in(folder, ["build/default/bin/app"]).stdout
    assert "scale of 1: grid 2 1 block 1 1 shared 0: from MLIR" in said
    assert "shift of 1: grid 2 3 block 4 5 shared 6: from C++" in said
    assert ran(folder, mlir_offload) == set()
    header = folder / "cuda_bare.h"
    header.write_text(f"{header.read_text()}// A comment.\n")
    assert ran(folder, mlir_offload) == {"source cuda_caller.cu"}
    manifest = folder / "offload.yaml"
    manifest.write_text(manifest.read_text().replace("sm_90", "host"))
    run_in(folder, [*mlir_offload, "trust"])
    done = run_in(folder, [*mlir_offload, "build"])
    assert done.returncode == 2
    assert "cuda_caller.cu is compiled for GPUs of kind cuda only" in done.stderr


def test_a_shared_library_is_an_input_of_a_program_and_found_at_run_time(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    manifest = (
        "archs: host\nflags: --llvm=22\nmodules: [m0.mlir]\ntargets:\n"
        "  app: {inputs: [{file: main.c, flags: -DTIMES=2 -gsplit-dwarf -g}, libm0.so]}\n"
        "  libm0.so: {kind: shared, inputs: [m0.mlir], flags: -fPIC}\n"
    )
    folder = write_project(tmp_path / "project", manifest, modules=1)
    (folder / "main.c").write_text(
        "void _mlir_ciface_run0(long n);\nint main(void) { _mlir_ciface_run0(TIMES); }\n"
    )
    assert {"link app", "link libm0.so"} <= ran(folder, mlir_offload)
    # What clang writes besides the object is next to it.
    assert (folder / "build/default/main.c-main.dwo").is_file()
    moved = folder.rename(tmp_path / "elsewhere")
    assert run_in(tmp_path, [moved / "build/default/bin/app"]).stdout == "0\n0\n"
    (moved / "m0.mlir").write_text((moved / "m0.mlir").read_text().replace("0 : i32", "7 : i32"))
    assert {"link app", "link libm0.so"} <= ran(moved, mlir_offload)
    assert run_in(tmp_path, [moved / "build/default/bin/app"]).stdout == "7\n7\n"
