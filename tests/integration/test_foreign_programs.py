"""One program of each class that programs written elsewhere brought up; tests/foreign runs those themselves."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.opencl import opencl_environment

from mlir_offload.driver.link.runner_library import explain_missing
from mlir_offload.offload.link.objects import read_inputs
from mlir_offload.offload.link.runner_library import (
    called_libraries,
    find_library,
    load_runner_table,
)
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.translate.host.module import find_other_types
from mlir_offload.translate.mlir.module import Locations, parse_module

INPUTS = Path(__file__).parent / "inputs"
CLANG = Path("/usr/lib/llvm-22/bin/clang")
pytestmark = pytest.mark.llvm(22)


def run(*argv: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    variables = {**os.environ, **environment}
    return subprocess.run(words, capture_output=True, text=True, env=variables, check=False)


@pytest.fixture(scope="module")
def program(mlir_offload: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("foreign") / "program"
    options = ("--llvm=22", "--offload-arch=spirv64,host", "--pipeline=transform-interpreter,gpu")
    done = run(*mlir_offload, *options, INPUTS / "foreign.mlir", "-o", output)
    assert done.returncode == 0, done.stderr
    return output


@pytest.mark.parametrize("device", ["host", "sycl"])
def test_script_runner_library_lowered_kernel_and_assertions(program: Path, device: str) -> None:
    variables = {"MLIR_OFFLOAD_DEVICE": device, **opencl_environment()}
    done = run(program, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "[5,  2,  4,  6]" in done.stdout
    assert re.findall("after (.)", done.stdout) == ["0", "1", "2"]

    failed = run(program, "fail", **variables)
    assert failed.returncode == 70
    assert re.findall("before (.)", failed.stdout) == ["0", "1", "2"]
    assert re.findall("after (.)", failed.stdout) == ["0"]
    for thread in (1, 2):
        place = f"a_file.mlir:7: the_function: block: [0,0,0], thread: [{thread},0,0]"
        text = f"{place} Assertion `thread below the limit` failed."
        assert text in failed.stdout + failed.stderr


def test_a_kernel_on_the_cpu_that_waits_for_another_one_ends_at_the_time_limit(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, program = INPUTS / "waiting_kernels.mlir", tmp_path / "program"
    done = run(*mlir_offload, "--llvm=22", "--offload-arch=host", source, "-o", program)
    assert done.returncode == 0, done.stderr
    waited = run(program, MLIR_OFFLOAD_TIMEOUT="1")
    assert waited.returncode == 70
    assert "a kernel did not end in 1 s\n  kernel: meet" in waited.stderr
    assert "MLIR_OFFLOAD_TIMEOUT" in waited.stderr
    wrong = run(program, MLIR_OFFLOAD_TIMEOUT="soon")
    assert (wrong.returncode, "MLIR_OFFLOAD_TIMEOUT is 'soon'" in wrong.stderr) == (70, True)


def test_a_program_with_tensor_maps_is_linked(mlir_offload: list[str], tmp_path: Path) -> None:
    source = INPUTS / "tma_descriptor.mlir"
    done = run(*mlir_offload, "--llvm=22", "--offload-arch=sm_90", source, "-o", tmp_path / "p")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("release", [pytest.param(19, marks=pytest.mark.llvm(19)), 22])
def test_vectors_become_matrices_of_a_subgroup_in_a_loop(
    mlir_offload: list[str], tmp_path: Path, release: int
) -> None:
    pipeline = "--pipeline=gpu.module(gpu.func(convert-vector-to-gpu)),gpu"
    options = (f"--llvm={release}", "--offload-arch=sm_80,host", pipeline)
    program = tmp_path / "program"
    done = run(*mlir_offload, *options, INPUTS / "vector_matmul.mlir", "-o", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(program, MLIR_OFFLOAD_DEVICE="host").returncode == 0


def test_sparse_code_generation_makes_a_kernel_that_is_run(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    passes = (
        "func.func(linalg-generalize-named-ops,linalg-fuse-elementwise-ops)",
        "sparsification-and-bufferization{parallelization-strategy=dense-outer-loop}",
        "sparse-storage-specifier-to-llvm,func.func(canonicalize),sparse-gpu-codegen,gpu",
    )
    options = ("--llvm=22", "--offload-arch=sm_80,host", f"--pipeline={','.join(passes)}")
    program = tmp_path / "program"
    done = run(*mlir_offload, *options, INPUTS / "sparse_matvec.mlir", "-o", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(program, MLIR_OFFLOAD_DEVICE="host").returncode == 1 + 3 * 6 + 4 * 7


def test_a_library_is_found_by_what_objects_leave_undefined(tmp_path: Path) -> None:
    source, made = tmp_path / "a.c", tmp_path / "a.o"
    declared = "void printMemrefF32(int, void *); void printF16(int); void printMemref(int);"
    # Assemblers store printMemrefF32 as the tail of the longer name.
    own = "void printMemrefI32(int a, void *b) {} void my_printMemrefF32(void) {}"
    calls = "void f(void) { printMemrefF32(0, 0); printF16(1); printMemrefI32(0, 0); }"
    source.write_text(f"{declared}\n{own}\n{calls}\n")
    run(CLANG, "-c", source, "-o", made)
    (read,) = read_inputs(made)
    assert not read.has_offloading
    found = called_libraries(read.library_functions)
    assert [one.name for one in found] == ["mlir_runner_utils", "mlir_float16_utils"]

    (tmp_path / "libmlir_runner_utils.so.19.1").touch()
    assert find_library(found[0], [tmp_path / "none", tmp_path]) is not None
    assert find_library(found[1], [tmp_path]) is None


def test_each_function_of_the_libraries_is_found() -> None:
    table = load_runner_table()
    for one in table.libraries:
        library = find_library(one, [CLANG.parents[1] / folder for folder in table.folders])
        assert library is not None, one.name
        listed = run("nm", "-D", "--defined-only", "--format=just-symbols", library).stdout.split()
        named = [name for name in listed if table.library_of(name) == one]
        assert named, one.name
        assert [name for name in named if not table.any_function.fullmatch(name)] == []


def test_a_library_that_is_not_installed_is_named_with_its_package() -> None:
    error = MlirOffloadError("clang failed")
    explain_missing(error, "ld.lld: error: undefined symbol: mlirAsyncRuntimeAddRef\n", 19, [])
    assert error.message == (
        "mlirAsyncRuntimeAddRef is in libmlir_async_runtime.so of LLVM 19, which was not found"
    )
    assert "apt install libmlir-19" in error.hint
    explain_missing(error, "ld.lld: error: undefined symbol: printf_of_mine\n", 19, [])
    assert "mlirAsyncRuntimeAddRef" in error.message


def test_a_function_that_a_library_has_only_for_the_c_interface_is_said_to_be_there(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, program = tmp_path / "bf16.mlir", tmp_path / "program"
    text = """func.func private @printMemrefBF16(memref<*xbf16>)
func.func @main() {
  %memory = memref.alloc() : memref<2xbf16>
  %any = memref.cast %memory : memref<2xbf16> to memref<*xbf16>
  call @printMemrefBF16(%any) : (memref<*xbf16>) -> ()
  return
}
"""
    source.write_text(text)
    command = [*mlir_offload, "--llvm=22", "--offload-arch=host", source, "-o", program]
    failed = run(*command)
    assert failed.returncode == 1
    assert "defines printMemrefBF16 only for calls by the C interface" in failed.stderr
    (asked,) = re.findall("attributes {[^}]*}", failed.stderr)
    source.write_text(text.replace("(memref<*xbf16>)\n", f"(memref<*xbf16>) {asked}\n", 1))
    done = run(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sizes = [2]" in run(program).stdout


def test_vectors_of_two_dimensions_are_loaded_and_stored(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "program"
    options = ("--llvm=22", "--offload-arch=host,sm_80,gfx90a")
    done = run(*mlir_offload, *options, INPUTS / "matrix_in_memory.mlir", "-o", program)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(program, MLIR_OFFLOAD_DEVICE="host")
    printed = [int(number) for number in re.findall(r"\d+", done.stdout.partition("data")[2])]
    assert printed == [0] * 8 + [22, 23, 24, 25, 32, 33, 34, 35] + [0] * 8


@pytest.mark.llvm(19)
def test_an_older_release_compiles_vectors_of_two_dimensions(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    options = ("--llvm=19", "--offload-arch=host,sm_80", "-c")
    done = run(
        *mlir_offload, *options, INPUTS / "matrix_in_memory.mlir", "-o", tmp_path / "object.o"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "release", [pytest.param(n, marks=pytest.mark.llvm(n), id=str(n)) for n in (19, 22)]
)
def test_what_upstream_declares_of_the_runner_library_is_what_the_table_says(
    tmp_path: Path, release: int
) -> None:
    kinds = ("f16", "bf16", "f32", "f64", "i64", "ui64", "vector<1xf32>")
    names = [f"%{number}: {kind}" for number, kind in enumerate(kinds)]
    prints = (f"  vector.print %{number} : {kind}" for number, kind in enumerate(kinds))
    source = tmp_path / "print.mlir"
    source.write_text(
        f"func.func @f({', '.join(names)}) {{\n{chr(10).join(prints)}\n  return\n}}\n"
    )
    opt = f"/usr/lib/llvm-{release}/bin/mlir-opt"
    passes = ("--convert-vector-to-scf", "--convert-vector-to-llvm", "--mlir-print-op-generic")
    done = run(opt, *passes, source)
    assert done.returncode == 0, done.stderr
    module = parse_module(done.stdout)
    locations = Locations(module.aliases)
    assert {"printBF16", "printF32", "printOpen"} <= {one.symbol for one in module.operations}
    assert list(find_other_types(module.operations, locations)) == []
    changed = parse_module(done.stdout.replace("!llvm.func<void (i16)>", "!llvm.func<void (f16)>"))
    found = find_other_types(changed.operations, locations)
    assert [one.message.split("'")[1] for one in found] == ["printBF16", "printF16"]
