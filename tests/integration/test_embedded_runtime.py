"""Modules and objects with the runtime inside (`--embed-runtime`), linked by clang alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.cuda_tools import cuda_directory

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.runtime import EXIT_STATUS
from mlir_offload.toolchain.target import host_triple

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
EVERY = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (16, 19, 22)]
# Optimizing the runtime in each object takes longer than all else; one test with objects for the CPU does.
QUICK = "-O0"
# The line of a stranger who has clang's documentation of the new offloading driver.
STRANGER = ("-fgpu-rdc", "--offload-new-driver", "-Wno-unused-command-line-argument")
# Calls a kernel without math functions: clang 16 would need libmvec for its image.
TWICE = """
module attributes {{gpu.container_module}} {{
gpu.module @{name}_kernels {{
  gpu.func @{name}_kernel(%m: memref<?xf32>) kernel {{
    %i = gpu.block_id x
    %v = memref.load %m[%i] : memref<?xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %m[%i] : memref<?xf32>
    gpu.return
  }}
}}
func.func @{name}(%m: memref<?xf32>) attributes {{llvm.emit_c_interface}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %m, %c0 : memref<?xf32>
  gpu.launch_func @{name}_kernels::@{name}_kernel blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1)
      args(%m : memref<?xf32>)
  return
}}
}}
"""
MAIN = """
#include <stdint.h>
#include <stdio.h>
typedef struct {{ float *allocated, *aligned; int64_t offset, size, stride; }} memref;
{declared}
int main(void) {{
  float data[] = {{1, 2, 3, 4}};
  memref m = {{data, data, 0, 4, 1}};
{called}
  printf("%g %g\\n", data[0], data[3]);
}}
"""


def _run(*argv: object, **environment: str) -> str:
    words = [str(word) for word in argv]
    variables = {"PATH": os.environ["PATH"], **environment}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _libraries(package: str, *variables: str) -> tuple[str, ...]:
    """Return what pkg-config answers for modules of a kind that embed the runtime."""
    folder = Path(__file__).resolve().parents[2] / "toolchain" / "pkgconfig"
    words = ("pkg-config", *(f"--define-variable={one}" for one in variables), "--libs", package)
    return tuple(_run(*words, PKG_CONFIG_PATH=str(folder)).split())


def _clang(major: int) -> str:
    return f"/usr/lib/llvm-{major}/bin/clang"


def _compile(mlir_offload: Sequence[str], output: Path, *options: str) -> Path:
    """Return a file with the function that its stem names, and its kernel."""
    source = output.with_suffix(".mlir")
    source.write_text(TWICE.format(name=output.stem), encoding="utf-8")
    form = {".o": ("-c",), ".bc": ("-c", "-emit-llvm"), ".ll": ("-S", "-emit-llvm")}
    words = (*form[output.suffix], "--embed-runtime", *options, str(source), "-o", str(output))
    subprocess.run([*mlir_offload, *words], check=True)
    return output


def _main(folder: Path, *functions: str) -> Path:
    source = folder / "main.c"
    declared = "".join(f"void _mlir_ciface_{name}(memref *);\n" for name in functions)
    called = "".join(f"  _mlir_ciface_{name}(&m);\n" for name in functions)
    source.write_text(MAIN.format(declared=declared, called=called), encoding="utf-8")
    return source


@pytest.mark.parametrize("major", EVERY)
def test_clang_links_modules_for_the_cpu_that_embed_the_runtime(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    options = ("--offload-arch=host", f"--for-clang={major}", "-fPIC")
    first = _compile(mlir_offload, tmp_path / "first.bc", *options)
    second = _compile(mlir_offload, tmp_path / "second.o", *options)
    program, main = tmp_path / "program", _main(tmp_path, "first", "second")

    _run(_clang(major), *STRANGER, main, first, second, "-o", program)

    assert _run(program) == "4 16\n"


@pytest.mark.llvm(22)
def test_a_program_and_its_shared_library_may_both_embed_the_runtime(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    options = ("--offload-arch=host", "-fPIC", QUICK)
    first = _compile(mlir_offload, tmp_path / "first.ll", *options)
    second = _compile(mlir_offload, tmp_path / "second.o", *options)
    library, program = tmp_path / "libfirst.so", tmp_path / "program"
    _run(_clang(22), "-shared", "-fPIC", "--offload-link", first, "-o", library)
    archive = tmp_path / "libsecond.a"
    _run("/usr/lib/llvm-22/bin/llvm-ar", "rcs", archive, second)
    third = _compile(mlir_offload, tmp_path / "third.o", *options)
    main = _main(tmp_path, "first", "second", "third")

    _run(_clang(22), "--offload-link", main, third, archive, library, "-o", program)

    assert _run(program) == "8 32\n"


@pytest.mark.llvm(22)
def test_device_code_that_clang_drops_from_libraries_is_missed_with_a_hint(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    options = ("--offload-arch=host", QUICK)
    first = _compile(mlir_offload, tmp_path / "first.o", *options)
    second = _compile(mlir_offload, tmp_path / "second.o", *options)
    archive, program = tmp_path / "libfirst.a", tmp_path / "program"
    _run("/usr/lib/llvm-22/bin/llvm-ar", "rcs", archive, first)
    line = (_clang(22), "--offload-link", _main(tmp_path, "first"))

    _run(*line, archive, "-o", program)
    done = subprocess.run([program], capture_output=True, text=True, check=False)

    assert done.returncode == EXIT_STATUS
    assert "an object with device code before the static libraries" in done.stderr
    _run(*line, second, archive, "-o", program)
    assert _run(program) == "2 8\n"


@pytest.mark.parametrize("major", EVERY)
def test_clang_links_modules_for_nvidia_gpus_with_libcudart_alone(
    major: int, mlir_offload: list[str], gpu_recorders: tuple[str, str], tmp_path: Path
) -> None:
    options = ("--offload-arch=sm_80", f"--for-clang={major}")
    module = _compile(mlir_offload, tmp_path / "first.bc", *options)
    second = _compile(mlir_offload, tmp_path / "second.o", *options, QUICK)
    cuda = load_abi(major).cuda_path_arguments(cuda_directory(tmp_path / "cuda", major))
    library = Path(gpu_recorders[0].removeprefix("--cuda-path=")) / "lib64"
    found = (
        *_libraries("mlir-offload-cuda", f"cuda_path={library.parent}"),
        f"-Wl,-rpath,{library}",
    )
    program, main = tmp_path / "program", _main(tmp_path, "first", "second")

    # LLVM 19 looks for ptxas on PATH.
    path = f"{tmp_path / 'cuda' / 'bin'}:{os.environ['PATH']}"
    _run(_clang(major), *STRANGER, *cuda, main, module, second, *found, "-o", program, PATH=path)

    assert _launches(_run(program, RECORD_ARGUMENTS="first_kernel=88888 second_kernel=88888")) == [
        "first_kernel",
        "second_kernel",
    ]


@pytest.mark.llvm(22)
def test_clang_links_a_module_for_amd_gpus_with_libamdhip64_alone(
    mlir_offload: list[str], gpu_recorders: tuple[str, str], tmp_path: Path
) -> None:
    rocm = gpu_recorders[1]
    module = _compile(mlir_offload, tmp_path / "first.bc", "--offload-arch=gfx90a", rocm)
    library = Path(rocm.removeprefix("--rocm-path=")) / "lib"
    found = (
        *_libraries("mlir-offload-hip", f"rocm_path={library.parent}"),
        f"-Wl,-rpath,{library}",
    )
    program, main = tmp_path / "program", _main(tmp_path, "first")

    _run(_clang(22), *STRANGER, main, module, *found, "-o", program)

    assert _launches(_run(program, RECORD_ARGUMENTS="first_kernel=88888")) == ["first_kernel"]


def _launches(recorded: str) -> list[str]:
    return [
        word
        for line in recorded.splitlines()
        if "LaunchKernel" in line
        for word in line.split()
        if word.endswith("_kernel")
    ]


@pytest.mark.llvm(22)
def test_objects_for_different_kinds_share_the_runtime_that_they_embed(
    mlir_offload: list[str], gpu_recorders: tuple[str, str], tmp_path: Path
) -> None:
    first = _compile(mlir_offload, tmp_path / "first.o", "--offload-arch=sm_80", QUICK)
    second = _compile(mlir_offload, tmp_path / "second.o", "--offload-arch=host", QUICK)
    cuda = load_abi(22).cuda_path_arguments(cuda_directory(tmp_path / "cuda", 22))
    library = Path(gpu_recorders[0].removeprefix("--cuda-path=")) / "lib64"
    found = (f"-L{library}", f"-Wl,-rpath,{library}", "-lcudart")
    program, main = tmp_path / "program", _main(tmp_path, "second")
    extra = tmp_path / "extra.c"
    extra.write_text("void _mlir_ciface_first(void *);\nvoid *use = _mlir_ciface_first;\n")

    _run(_clang(22), "--offload-link", *cuda, main, extra, first, second, *found, "-o", program)

    assert "2 8\n" in _run(program, MLIR_OFFLOAD_DEVICE="host")


OPENMP = """
extern int omp_is_initial_device(void);
int on_device(void) {
  int value = 3;
#pragma omp target map(tofrom: value)
  value *= 7;
  return value;
}
"""


@pytest.mark.llvm(19)
def test_an_embedded_runtime_leaves_clangs_openmp_kernels_to_libomptarget(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    options = ("--offload-arch=host", "--for-clang=19", QUICK)
    first = _compile(mlir_offload, tmp_path / "first.o", *options)
    source, main = tmp_path / "openmp.c", _main(tmp_path, "first")
    source.write_text(OPENMP, encoding="utf-8")
    main.write_text(
        main.read_text().replace(
            'printf("', 'extern int on_device(void);\n  printf("%d ", on_device());\n  printf("'
        )
    )
    program = tmp_path / "program"
    openmp = ("-fopenmp", f"-fopenmp-targets={host_triple()}", "-Wno-openmp-target")
    rpath = "-Wl,-rpath,/usr/lib/llvm-19/lib"

    _run(_clang(19), *openmp, main, source, first, rpath, "-o", program)

    assert _run(program, OMP_TARGET_OFFLOAD="mandatory") == "21 2 8\n"


def test_a_link_refuses_to_embed_the_runtime(mlir_offload: list[str], tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text("module {}\n")
    argv = [*mlir_offload, "--embed-runtime", str(tmp_path / "k.mlir"), "-o", str(tmp_path / "k")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--embed-runtime is for -c, -S and -emit-llvm" in done.stderr
