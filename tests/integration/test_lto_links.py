"""Links with LTO and OpenMP, of modules in bitcode and of objects whose device code clang has linked."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlir_offload.offload.abi import host_layout
from mlir_offload.offload.link.held_image import loaded_images
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.target import host_triple

Compiled = Callable[..., tuple[Path, ...]]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
TWO = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
EVERY = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (15, 16, 19, 22)]
SAME = """
module attributes {{gpu.container_module}} {{
gpu.module @kernels {{
  gpu.func @same(%x: !llvm.ptr) kernel {{
    %c = arith.constant {value} : i32
    llvm.store %c, %x : i32, !llvm.ptr
    gpu.return
  }}
}}
func.func @launch{value}(%x: !llvm.ptr) {{
  %c1 = arith.constant 1 : index
  gpu.launch_func @kernels::@same blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
      args(%x : !llvm.ptr)
  return
}}
}}
"""
MAIN = """
#include <stdio.h>
void launch1(int *);
void launch2(int *);
int main(void) {
  int one = 0, two = 0;
  launch1(&one);
  launch2(&two);
  printf("%d %d\\n", one, two);
}
"""
PARALLEL = """
#include <stdio.h>
__attribute__((constructor)) static void count(void) {
  int threads = 0;
#pragma omp parallel reduction(+: threads) num_threads(3)
  threads += 1;
  printf("%d threads\\n", threads);
}
"""


def _run(*argv: object) -> str:
    words = [str(word) for word in argv]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def compile_both(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Return a function that compiles two kernels of one name, once with the same options."""

    @functools.cache
    def compiled(*options: str) -> tuple[Path, ...]:
        folder = tmp_path_factory.mktemp("kernels")
        outputs = []
        for value in (1, 2):
            source, output = folder / f"k{value}.mlir", folder / f"k{value}.o"
            source.write_text(SAME.format(value=value), encoding="utf-8")
            _run(*mlir_offload, "--offload-arch=host", *options, source, "-o", output)
            outputs.append(output)
        return tuple(outputs)

    return compiled


def _link(mlir_offload: Sequence[str], folder: Path, *words: object) -> str:
    (folder / "main.c").write_text(MAIN, encoding="utf-8")
    _run(*mlir_offload, folder / "main.c", *words, "-o", folder / "app")
    return _run(folder / "app")


def _linked_kernels(program: Path) -> list[str]:
    images = (image for item in read_objects(program) for image in loaded_images(item))
    return sorted(kernel for image in images for kernel in image.kernels or ())


@pytest.mark.parametrize(
    ("option", "major"),
    [
        pytest.param("-flto=thin", 19, marks=pytest.mark.llvm(19)),
        pytest.param("-flto", 22, marks=pytest.mark.llvm(22)),
    ],
)
def test_a_program_is_linked_with_lto(
    option: str, major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    sources = (EXAMPLES / "square.mlir", EXAMPLES / "main.c")
    options = (f"--for-clang={major}", option, "--offload-arch=host")

    _run(*mlir_offload, *options, *sources, "-o", tmp_path / "app")

    assert _run(tmp_path / "app") == "square: ok, 1000 elements\n"


@pytest.mark.parametrize("major", TWO)
def test_modules_in_bitcode_with_kernels_of_one_name_are_kept_apart(
    major: int,
    mlir_offload: list[str],
    compile_both: Compiled,
    tmp_path: Path,
) -> None:
    release = f"--for-clang={major}"
    modules = compile_both(release, "-emit-llvm")
    assert all(path.read_bytes()[:2] == b"BC" for path in modules)

    assert _link(mlir_offload, tmp_path, release, *modules) == "1 2\n"


@pytest.mark.llvm(22)
def test_a_module_in_bitcode_may_be_in_a_library(
    mlir_offload: list[str], compile_both: Compiled, tmp_path: Path
) -> None:
    member, other = compile_both("--for-clang=22", "-emit-llvm")
    library = tmp_path / "libmember.a"
    _run("/usr/lib/llvm-22/bin/llvm-ar", "rcs", library, member)

    assert _link(mlir_offload, tmp_path, other, library) == "1 2\n"


@pytest.mark.parametrize("major", TWO)
def test_objects_that_clang_finished_may_have_kernels_of_one_name(
    major: int,
    mlir_offload: list[str],
    compile_both: Compiled,
    tmp_path: Path,
) -> None:
    release, clang = f"--for-clang={major}", f"/usr/lib/llvm-{major}/bin/clang"
    objects = compile_both(release, "-c", "-O0", "--embed-runtime")
    finished = [tmp_path / path.name for path in objects]
    for path, output in zip(objects, finished, strict=True):
        _run(clang, "-r", "--offload-link", path, "-o", output)

    assert _link(mlir_offload, tmp_path, release, *finished) == "1 2\n"
    assert _link(mlir_offload, tmp_path, release, finished[0], objects[1]) == "1 2\n"


@pytest.mark.parametrize(
    "major", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (16, 22)]
)
def test_objects_are_linked_to_one_object_with_kernels_of_one_name_apart(
    major: int,
    mlir_offload: list[str],
    compile_both: Compiled,
    tmp_path: Path,
) -> None:
    release = f"--for-clang={major}"
    objects = compile_both(release, "-c")

    one, both = tmp_path / "one.o", tmp_path / "both.o"
    _run(*mlir_offload, release, "-r", objects[0], "-o", one)
    for inputs in (objects, (objects[1], one)):
        _run(*mlir_offload, release, "-r", *inputs, "-o", both)
        assert _link(mlir_offload, tmp_path, release, both) == "1 2\n"


@pytest.mark.llvm(22)
def test_a_linked_object_for_spirv_is_refused(mlir_offload: list[str], tmp_path: Path) -> None:
    words = [*mlir_offload, "-r", "--offload-arch=spirv64", EXAMPLES / "square.mlir"]

    done = subprocess.run(
        [*map(str, words), "-o", tmp_path / "r.o"], capture_output=True, text=True, check=False
    )

    assert "-r: LLVM 22 cannot link code for spirv64 object by object" in done.stderr
    assert not (tmp_path / "r.o").exists()
    assert "leave spirv64 out of --offload-arch" in done.stderr
    host = [word.replace("spirv64", "host") for word in map(str, words)]
    _run(*host, "-o", tmp_path / "r.o")


@pytest.mark.llvm(16)
def test_an_older_release_links_objects_to_one_but_no_library(
    mlir_offload: list[str], compile_both: Compiled, tmp_path: Path
) -> None:
    driver = (*mlir_offload, "--for-clang=16")
    (path, _) = compile_both("--for-clang=16", "-c")
    library = tmp_path / "libk.a"
    _run("/usr/lib/llvm-16/bin/llvm-ar", "rcs", library, path)
    words = [*map(str, (*driver, "-r", library)), "-o", str(tmp_path / "r.o")]

    done = subprocess.run(words, capture_output=True, text=True, check=False)

    hint = "name the objects that the library is made of, or link with LLVM 19 or newer"
    assert f"hint: {hint}" in done.stderr
    _run(*driver, "-r", path, "-o", tmp_path / "r.o")


@pytest.mark.parametrize(
    ("major", "arch", "options"),
    [
        pytest.param(19, "gfx90a", ("-flto=thin", "-fopenmp"), marks=pytest.mark.llvm(19)),
        pytest.param(22, "gfx90a", ("-flto",), marks=pytest.mark.llvm(22)),
        pytest.param(22, "spirv64", ("-flto=thin",), marks=pytest.mark.llvm(22)),
    ],
)
def test_objects_for_gpus_are_linked_with_lto_and_openmp_and_named_once(
    major: int, arch: str, options: Sequence[str], mlir_offload: list[str], tmp_path: Path
) -> None:
    # Two kernels of one name cannot be kept apart for spirv64.
    names = ("same", "same") if arch != "spirv64" else ("one", "two")
    driver, objects = (*mlir_offload, f"--for-clang={major}"), []
    for value, name in enumerate(names, 1):
        source, output = tmp_path / f"k{value}.mlir", tmp_path / f"k{value}.o"
        source.write_text(SAME.format(value=value).replace("same", name), encoding="utf-8")
        _run(*driver, "-c", f"--offload-arch={arch}", source, "-o", output)
        objects.append(output)
    (tmp_path / "main.c").write_text(MAIN, encoding="utf-8")
    line = (*driver, *options, tmp_path / "main.c", *objects)

    _run(*line, "-o", tmp_path / "app")

    assert _linked_kernels(tmp_path / "app") == sorted(names)
    words = [*map(str, (*line, objects[0])), "-o", str(tmp_path / "other")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert f"hint: name {objects[0]} once" in done.stderr
    if arch != "spirv64" and major > 19:
        _run(*driver, "-r", *objects, "-o", tmp_path / "both.o")
        _run(*driver, tmp_path / "main.c", tmp_path / "both.o", "-o", tmp_path / "app")
        assert _linked_kernels(tmp_path / "app") == sorted(names)


@pytest.mark.llvm(19)
def test_openmp_of_the_host_is_compiled_and_linked(mlir_offload: list[str], tmp_path: Path) -> None:
    parallel, rpath = tmp_path / "parallel.c", "-Wl,-rpath,/usr/lib/llvm-19/lib"
    parallel.write_text(PARALLEL, encoding="utf-8")
    sources = (parallel, EXAMPLES / "square.mlir", EXAMPLES / "main.c")
    options = ("--for-clang=19", "-fopenmp", "--offload-arch=host", rpath)

    _run(*mlir_offload, *options, *sources, "-o", tmp_path / "app")

    assert _run(tmp_path / "app") == "3 threads\nsquare: ok, 1000 elements\n"


@pytest.mark.parametrize("major", EVERY)
def test_the_layout_of_the_host_is_that_of_clang(major: int) -> None:
    clang = (f"/usr/lib/llvm-{major}/bin/clang", "-x", "c", "-S", "-emit-llvm")
    text = _run(*clang, "/dev/null", "-o", "-")
    assert f'target datalayout = "{host_layout(host_triple(), major)}"' in text
