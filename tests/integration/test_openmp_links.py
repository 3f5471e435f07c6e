"""Links of our objects for the CPU with OpenMP code of clang and of GCC."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.checked_run import run_checked, written

from mlir_offload.toolchain.target import host_triple

TWO = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
TWICE = """
func.func @twice(%m: memref<?xf32>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %m, %c0 : memref<?xf32>
  gpu.launch blocks(%i, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%lx = %c1, %ly = %c1, %lz = %c1) {
    %v = memref.load %m[%i] : memref<?xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %m[%i] : memref<?xf32>
    gpu.terminator
  }
  return
}
"""
OFFLOADED = """
int other(void) {
  int value = 3;
#pragma omp target map(tofrom: value)
  value *= 7;
  return value;
}
"""
PARALLEL = """
int other(void) {
  int count = 0;
#pragma omp parallel reduction(+: count) num_threads(3)
  count += 1;
  return count;
}
"""
MAIN = """
#include <stdint.h>
#include <stdio.h>
typedef struct { float *allocated, *aligned; int64_t offset, size, stride; } memref;
void _mlir_ciface_twice(memref *);
int other(void);
int main(void) {
  float data[] = {1, 2, 3, 4};
  memref m = {data, data, 0, 4, 1};
  _mlir_ciface_twice(&m);
  printf("%g %g %d\\n", data[0], data[3], other());
}
"""


def _openmp_object(folder: Path, major: int) -> Path:
    source, output = written(folder / "other.c", OFFLOADED), folder / "other.o"
    flags = ("-fopenmp", f"-fopenmp-targets={host_triple()}", "-c", source, "-o", output)
    run_checked(f"/usr/lib/llvm-{major}/bin/clang", *flags)
    return output


@pytest.mark.parametrize("major", TWO)
def test_clangs_openmp_object_links_and_runs_beside_mlir(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    theirs, app = _openmp_object(tmp_path, major), tmp_path / "app"
    sources = (written(tmp_path / "k.mlir", TWICE), written(tmp_path / "main.c", MAIN))
    release, (ours, main) = f"--for-clang={major}", (path.with_suffix(".o") for path in sources)
    for source, made in zip(sources, (ours, main), strict=True):
        run_checked(*mlir_offload, release, "--offload-arch=host", "-c", source, "-o", made)

    # By default lld removes the entries of clang's objects.
    for inputs in ((theirs, ours), (ours, theirs, "-Wl,--gc-sections")):
        run_checked(*mlir_offload, release, main, *inputs, "-o", app)
        assert run_checked(app, OMP_TARGET_OFFLOAD="mandatory") == "2 8 21\n"
    line = (*mlir_offload, release, main, *inputs, "-Wl,-z,start-stop-gc", "-o", app)
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False)
    assert "the linker removed the entries that register kernels: __omp_offloading" in done.stderr
    assert "hint: leave out --gc-sections or -z start-stop-gc" in done.stderr


@pytest.mark.llvm(22)
def test_clangs_openmp_object_may_be_in_a_static_library(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    theirs, library = _openmp_object(tmp_path, 22), tmp_path / "libother.a"
    run_checked("/usr/lib/llvm-22/bin/llvm-ar", "rcs", library, theirs)
    ours, main = written(tmp_path / "k.mlir", TWICE), written(tmp_path / "main.c", MAIN)

    run_checked(*mlir_offload, "--offload-arch=host", main, ours, library, "-o", tmp_path / "app")

    assert run_checked(tmp_path / "app", OMP_TARGET_OFFLOAD="mandatory") == "2 8 21\n"


@pytest.mark.llvm(22)
def test_images_that_clang_linked_are_not_linked_again(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    theirs = _openmp_object(tmp_path, 22)
    linked, library = tmp_path / "linked", tmp_path / "liblinked.a"
    run_checked("/usr/lib/llvm-22/bin/clang", "-r", "--offload-link", theirs, "-o", linked)
    run_checked("/usr/lib/llvm-22/bin/llvm-ar", "rcs", library, linked)
    main, source = written(tmp_path / "main.c", MAIN), written(tmp_path / "k.mlir", TWICE)
    ours, finished = tmp_path / "k.o", tmp_path / "finished.o"
    run_checked(*mlir_offload, "--offload-arch=host", "-c", source, "-o", ours)
    # This one has been taken apart from the wrapper before.
    run_checked(*mlir_offload, "-r", ours, "-o", finished)
    run_checked(*mlir_offload, "-r", linked, finished, "-o", tmp_path / "both.o")

    named = (f"-L{tmp_path}", f"-l:{ours.name}")
    # Without section headers nothing can be verified.
    both = (tmp_path / "both.o", "-Wl,-z,nosectionheader")
    for inputs in ((linked, ours), (library, *named), both):
        run_checked(*mlir_offload, "--offload-arch=host", main, *inputs, "-o", tmp_path / "app")
        assert run_checked(tmp_path / "app", OMP_TARGET_OFFLOAD="mandatory") == "2 8 21\n"


@pytest.mark.parametrize(
    ("major", "order"),
    [
        pytest.param(19, "{0} -lgomp {1}", marks=pytest.mark.llvm(19), id="19-last"),
        pytest.param(22, "-lgomp {0} {1}", marks=pytest.mark.llvm(22), id="22-first"),
    ],
)
def test_libgomp_does_not_answer_for_libomptarget(
    major: int, order: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    source, theirs = written(tmp_path / "other.c", PARALLEL), tmp_path / "other.o"
    run_checked("gcc", "-fopenmp", "-c", source, "-o", theirs)
    ours, main = written(tmp_path / "k.mlir", TWICE), written(tmp_path / "main.c", MAIN)
    words = (
        "-Wl,--no-as-needed",
        main,
        *order.format(theirs, ours).split(),
        "-o",
        tmp_path / "app",
    )

    run_checked(*mlir_offload, f"--for-clang={major}", "--offload-arch=host", *words)

    assert run_checked(tmp_path / "app") == "2 8 3\n"


@pytest.mark.llvm(22)
def test_programs_that_other_compilers_link_with_libgomp_run_kernels(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, theirs = written(tmp_path / "other.c", PARALLEL), tmp_path / "other.o"
    run_checked("gcc", "-fopenmp", "-c", source, "-o", theirs)
    ours, main = written(tmp_path / "k.mlir", TWICE), written(tmp_path / "main.c", MAIN)
    final = tmp_path / "k.o"
    run_checked(
        *mlir_offload, "-c", "-fPIC", "-fno-gpu-rdc", "--offload-arch=host", ours, "-o", final
    )
    libraries = ("-ldl", "-lpthread", "-lm")
    for compiler in ("g++", "/usr/lib/llvm-22/bin/clang++"):
        for inputs in ((theirs, "-lgomp", final), (final, theirs, "-lgomp")):
            words = ("-Wl,--no-as-needed", "-x", "c", main, "-x", "none", *inputs, *libraries)
            run_checked(compiler, "-Wno-deprecated", *words, "-o", tmp_path / "app")
            assert run_checked(tmp_path / "app") == "2 8 3\n"


NAMED = """
gpu.module @{name} {{
  gpu.func @{name}(%m: memref<?xf32>) kernel {{
    %t = gpu.thread_id x
    %x = memref.load %m[%t] : memref<?xf32>
    %y = {operation} %x, %x : f32
    memref.store %y, %m[%t] : memref<?xf32>
    gpu.return
  }}
}}
"""


@pytest.mark.llvm(22)
def test_a_kernel_is_not_called_for_a_c_function_of_another_file(
    mlir_offload: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"atan2f": "arith.mulf", "work": "math.atan2", "fine": "arith.mulf"}
    for name, operation in named.items():
        written(tmp_path / f"{name}.mlir", NAMED.format(name=name, operation=operation))
    compiled = ("--offload-arch=host", "-c", *(f"{name}.mlir" for name in named))
    run_checked(*mlir_offload, *compiled)
    link = (*mlir_offload, "-shared", "work.o", "-o", "linked.so")
    done = subprocess.run([*link, "atan2f.o"], capture_output=True, text=True, check=False)
    assert done.returncode == 6
    said = (
        "atan2f.o: error: kernel @atan2f has the name of a C function that kernels of work.o call"
    )
    assert said in done.stderr
    run_checked(*link, "fine.o")
