"""The hints of errors that a link finds in its inputs, carried out: the link succeeds then."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.cuda_emulator import CudaEmulator, run_program

SQUARE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "square.mlir"
MAIN = SQUARE.with_name("main.c")
TWICE = """
func.func @twice(%m: memref<?xf32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%i, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%lx = %c1, %ly = %c1, %lz = %c1) {
    %v = memref.load %m[%i] : memref<?xf32>
    memref.store %v, %m[%i] : memref<?xf32>
    gpu.terminator
  }
  return
}
"""
NAMED = """
module attributes {{gpu.container_module}} {{
gpu.module @kernels {{
  gpu.func @same(%x: !llvm.ptr) kernel {{
    %c = arith.constant {factor} : f32
    llvm.store %c, %x : f32, !llvm.ptr
    gpu.return
  }}
}}
func.func @{name}(%x: !llvm.ptr) {{
  %c1 = arith.constant 1 : index
  gpu.launch_func @kernels::@same blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
      args(%x : !llvm.ptr)
  return
}}
}}
"""
NAMES = """
#include <stdio.h>
void one(float *);
void two(float *);
int main(void) {
  float x[2];
  one(x);
  two(x + 1);
  printf("%g %g\\n", x[0], x[1]);
}
"""
pytestmark = pytest.mark.llvm(22)


def _call(folder: Path, *argv: object, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    environment = {**os.environ}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    assert expect is None or done.returncode == expect, done.stderr
    return done


def _object(mlir_offload: Sequence[str], folder: Path, name: str, *options: str) -> None:
    source = SQUARE
    if name == "twice":
        source = folder / "twice.mlir"
        source.write_text(TWICE, encoding="utf-8")
    _call(folder, *mlir_offload, "-c", *options, source, "-o", f"{name}.o")


def _hint(mlir_offload: Sequence[str], folder: Path, *inputs: object) -> str:
    """Return the hint of the error at which the link stops."""
    done = _call(folder, *mlir_offload, *inputs, "-o", "app", expect=None)
    assert done.returncode
    found = re.search(r"hint: (.*)", done.stderr)
    assert found, done.stderr
    return found[1]


def test_an_object_is_compiled_for_the_other_architecture_too(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    made_for = {"square": "sm_80", "twice": "sm_90"}
    for name, arch in made_for.items():
        _object(mlir_offload, tmp_path, name, f"--offload-arch={arch}")
    inputs = (MAIN, "square.o", "twice.o")

    hint = _hint(mlir_offload, tmp_path, *inputs)

    done = None
    for _ in made_for:
        found = re.fullmatch(r"(\w+)\.o is made for (\w+): compile it with (\S+) too", hint)
        assert found
        _object(mlir_offload, tmp_path, found[1], f"--offload-arch={found[2]}", found[3])
        done = _call(tmp_path, *mlir_offload, *inputs, "-o", "app", expect=None)
        hint = done.stderr.partition("hint: ")[2].strip()
    assert done
    assert (done.returncode, hint) == (0, "")


def test_objects_with_kernels_of_one_name_are_linked_to_one(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    for name, factor in {"one": 1.0, "two": 2.0}.items():
        source = NAMED.format(name=name, factor=factor)
        (tmp_path / f"{name}.mlir").write_text(source, encoding="utf-8")
        words = ("-c", "--offload-arch=host", f"{name}.mlir", "-o", f"{name}.o")
        _call(tmp_path, *mlir_offload, *words)
    (tmp_path / "names.c").write_text(NAMES, encoding="utf-8")
    objects = ("one.o", "two.o", "-o", "both.o")
    # The public stubs have one name, so that GNU ld does not do it unasked.
    _call(tmp_path, "ld", "-r", "-z", "muldefs", *objects)

    hint = _hint(mlir_offload, tmp_path, "names.c", "both.o")

    found = re.fullmatch(r"link these objects to one with mlir-offload (-r), which .*", hint)
    assert found
    _call(tmp_path, *mlir_offload, found[1], *objects)
    _call(tmp_path, *mlir_offload, "names.c", "both.o", "-o", "app")
    assert _call(tmp_path, "./app").stdout == "1 2\n"


def test_an_object_is_named_once(mlir_offload: list[str], tmp_path: Path) -> None:
    _object(mlir_offload, tmp_path, "square", "--offload-arch=host")
    inputs = [MAIN, "square.o", "square.o"]

    assert _hint(mlir_offload, tmp_path, *inputs) == "name square.o once"

    _call(tmp_path, *mlir_offload, *inputs[:2], "-o", "app")


NAMED_TWICE = """
func.func @one() -> i32 {
  %c1 = arith.constant 1 : index
  %m = gpu.alloc host_shared () : memref<2xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%lx = %c1, %ly = %c1, %lz = %c1) {
    %seven = arith.constant 7 : i32
    memref.store %seven, %m[%c1] : memref<2xi32>
    gpu.terminator
  }
  %v = memref.load %m[%c1] : memref<2xi32>
  return %v : i32
}
"""


@pytest.mark.parametrize(
    ("options", "links"),
    [
        (("--offload-arch=host",), False),
        (("--offload-arch=sm_90",), True),
        (("--offload-arch=sm_90", "--device-code=object"), False),
        (("--offload-arch=spirv64",), False),
    ],
    ids=["CPU", "CUDA bitcode", "cubins", "SPIR-V"],
)
def test_an_object_that_is_named_twice_links_where_the_wrapper_takes_it(
    options: tuple[str, ...],
    links: bool,  # noqa: FBT001 (a parameter of the test)
    mlir_offload: list[str],
    cuda_emulator: CudaEmulator,
    tmp_path: Path,
) -> None:
    (tmp_path / "one.mlir").write_text(NAMED_TWICE, encoding="utf-8")
    (tmp_path / "main.c").write_text("int one(void); int main(void) { return one(); }\n")
    cuda = cuda_emulator.options(is_kept=False) if "sm_90" in options[0] else ()
    _call(tmp_path, *mlir_offload, "-c", *options, *cuda, "one.mlir", "-o", "one.o")
    _call(tmp_path, *mlir_offload, "-c", "main.c", "-o", "main.o")
    link = (*mlir_offload, *cuda, "main.o", "one.o", "one.o", "-Wl,-z,muldefs", "-o", "app")

    # The commands are those of clang with its wrapper.
    commands = _call(tmp_path, *link, "-###", "--save-temps=temps").stderr
    own = tmp_path / "mlir-offload"
    own.write_text(f'#!/bin/sh\nexec {shlex.join(mlir_offload)} "$@"\n', encoding="utf-8")
    own.chmod(0o755)
    (tmp_path / "commands").write_text(f"PATH=.:$PATH\n{commands}", encoding="utf-8")
    assert "clang --offload-link" in commands, commands
    theirs = _call(tmp_path, "sh", "-e", "commands", expect=None)
    assert (theirs.returncode == 0) == links, theirs.stderr
    ours = _call(tmp_path, *link, expect=None)
    assert (ours.returncode == 0) == links, ours.stderr
    if not links:
        assert "is defined more than once\n  hint: name one.o once" in ours.stderr
    else:
        assert run_program(tmp_path / "app").returncode == 7


@pytest.mark.parametrize("way", [0, 1], ids=["mlir-offload", "clang"])
def test_a_shared_library_is_linked_again(
    way: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    _object(
        mlir_offload, tmp_path, "square", "-O0", "--offload-arch=host", "-fPIC", "--embed-runtime"
    )
    _call(tmp_path, "/usr/lib/llvm-22/bin/clang", "-shared", "square.o", "-o", "libsquare.so")

    hint = _hint(mlir_offload, tmp_path, MAIN, "libsquare.so")

    found = re.fullmatch(r"link it again with (mlir-offload -shared), or with (clang .*)", hint)
    assert found
    program, *options = found[way + 1].split()
    programs: dict[str, Sequence[str]] = {
        "mlir-offload": mlir_offload,
        "clang": ["/usr/lib/llvm-22/bin/clang"],
    }
    _call(tmp_path, *programs[program], *options, "square.o", "-o", "libsquare.so")
    _call(tmp_path, *mlir_offload, MAIN, "libsquare.so", "-Wl,-rpath,.", "-o", "app")
    assert _call(tmp_path, "./app").stdout == "square: ok, 1000 elements\n"


def test_an_object_of_gccs_lto_is_compiled_with_machine_code(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "half.c").write_text("int half(int x) { return x / 2; }\n", encoding="utf-8")
    main = "int half(int);\nint main(void) { return half(2) - 1; }\n"
    (tmp_path / "main.c").write_text(main, encoding="utf-8")
    compile_half = ("gcc", "-flto", "-c", "half.c", "-o", "half.o")
    _call(tmp_path, *compile_half)
    words = (*mlir_offload, "main.c", "half.o", "-o", "app")
    done = _call(tmp_path, *words, expect=None)

    found = re.search(r"hint: compile it with (-\S+), ", done.stderr)

    assert found, done.stderr
    _call(tmp_path, *compile_half, found[1])
    _call(tmp_path, *words)
    _call(tmp_path, "./app")
