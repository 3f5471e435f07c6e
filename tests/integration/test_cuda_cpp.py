"""Kernels of MLIR launched by CUDA C++ and the reverse, linked together by each release.

A libcudart that records the calls shows which registered kernel a launch names and its arguments.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root

from mlir_offload.driver.system.depfile import read_prerequisites
from mlir_offload.offload.host.mangling import find_stub_symbol

INPUTS = Path(__file__).parent / "inputs"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
BARE = ("-nocudainc", "-nocudalib")
LAUNCHES = """\
shift of 1: grid 2 3 block 4 5 shared 6: from C++ 0x7
_Z5blendPKcf of 1: grid 1 1 block 8 1 shared 0: from C++ 0x3f000000
_ZN4mlir4fillEPKci of 1: grid 9 1 block 1 1 shared 0: from C++ 0xffffffff
shift of 1: grid 1 1 block 2 1 shared 0: from MLIR 0x5
scale of 1: grid 2 1 block 1 1 shared 0: from MLIR 0x3f000000
_ZN4cuda3addIiEEvPT_S1_ of 1: grid 1 2 block 1 1 shared 0: from MLIR 0x5
scale of 1: grid 3 1 block 1 1 shared 0: from C++ 0x40000000
""".splitlines()

OWN_SCALE = """\
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @scale(%p: !llvm.ptr, %v: i32) kernel {
      gpu.return
    }
    gpu.func @other(%p: !llvm.ptr, %v: i32) kernel {
      gpu.return
    }
  }
  func.func @run_in_mlir(%p: !llvm.ptr) {
    %one = arith.constant 1 : index
    %five = arith.constant 5 : i32
    gpu.launch_func @kernels::@scale blocks in (%one, %one, %one) threads in (%one, %one, %one) args(%p : !llvm.ptr, %five : i32)
    return
  }
}
"""
MAIN_WITH_SCALE = """\
#include "cuda_bare.h"
extern "C" void run_in_mlir(const char *);
extern "C" __global__ void scale(float *values, float factor) { *values *= factor; }
int main() {
  run_in_mlir("from MLIR");
  scale<<<3, 1>>>((float *)"from C++", 2.0f);
}
"""
# CUDA C++ whose device code MLIR imports, and a program that launches it.
IMPORTED = """\
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
__device__ __attribute__((used, visibility("protected"))) int base = 1;
__device__ int *pointer = &base;
__device__ __attribute__((noinline)) int twice(int x) { return 2 * x; }
extern "C" __attribute__((global)) void swap_neighbors(int *p) {
  __shared__ int tile[4];
  int i = __nvvm_read_ptx_sreg_tid_x();
  // Less than 1 if the sum is rounded to 0, and 0 as an integer.
  int none = (int)__builtin_fabsf(__nvvm_add_rz_f(p[0] - 2.0f, 0x1p-30f));
  tile[i] = twice(p[i]) + *pointer + none;
  __syncthreads();
  p[i] = tile[i ^ 1];
}
"""
LAUNCHES_IMPORTED = """\
module attributes {gpu.container_module} {
  gpu.module @elsewhere {
    llvm.func @swap_neighbors(!llvm.ptr) attributes {gpu.kernel}
  }
  func.func @main() -> i32 {
    %one = arith.constant 1 : index
    %four = arith.constant 4 : index
    %three = arith.constant 3 : index
    %m = memref.get_global @numbers : memref<4xi32>
    %i = memref.extract_aligned_pointer_as_index %m : memref<4xi32> -> index
    %j = arith.index_cast %i : index to i64
    %p = llvm.inttoptr %j : i64 to !llvm.ptr
    gpu.launch_func @elsewhere::@swap_neighbors blocks in (%one, %one, %one) threads in (%four, %one, %one) args(%p : !llvm.ptr)
    %last = memref.load %m[%three] : memref<4xi32>
    return %last : i32
  }
  memref.global @numbers : memref<4xi32> = dense<[1, 2, 30, 4]>
}
"""


def run(*argv: str | Path, status: int = 0) -> str:
    result = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    assert result.returncode == status, result.stderr
    return result.stdout + result.stderr


def launches(program: Path) -> list[str]:
    """Return the launches that a program makes; what else it asks of CUDA is left out."""
    return [line for line in run(program).splitlines() if " of " in line]


@pytest.mark.parametrize("major", RELEASES)
def test_cpp_and_mlir_launch_the_kernels_of_each_other_in_one_program(
    mlir_offload: list[str], cuda_recorder: Path, tmp_path: Path, major: int
) -> None:
    compiler = (*mlir_offload, f"--llvm={major}", f"--cuda-path={cuda_recorder}")
    sources = (INPUTS / "cuda_caller.cu", INPUTS / "cuda_callee.mlir")
    run(*compiler, "--offload-arch=sm_90", *BARE, *sources, "-o", tmp_path / "app")
    assert launches(tmp_path / "app") == LAUNCHES


@pytest.mark.parametrize("major", RELEASES)
def test_an_object_that_clang_made_of_cpp_links_with_one_of_mlir(
    mlir_offload: list[str], cuda_recorder: Path, tmp_path: Path, major: int
) -> None:
    compiler = (*mlir_offload, f"--llvm={major}", f"--cuda-path={cuda_recorder}")
    archs = ("--offload-arch=sm_80", "--offload-arch=sm_90")
    run(
        *(f"/usr/lib/llvm-{major}/bin/clang", "-fgpu-rdc", "--offload-new-driver", "-foffload-lto"),
        *(*archs, *BARE, f"--cuda-path={cuda_recorder}", "-Wno-unknown-cuda-version", "-c"),
        *(INPUTS / "cuda_caller.cu", "-o", tmp_path / "caller.o"),
    )
    callee = tmp_path / "callee.o"
    run(*compiler, "-c", *archs, INPUTS / "cuda_callee.mlir", "-o", callee)
    run(*compiler, callee, tmp_path / "caller.o", "-lstdc++", "-o", tmp_path / "app")
    assert launches(tmp_path / "app") == LAUNCHES


@pytest.mark.llvm(22)
def test_a_kernel_of_cpp_may_have_the_name_of_one_of_mlir(
    mlir_offload: list[str], cuda_recorder: Path, tmp_path: Path
) -> None:
    compiler = (*mlir_offload, f"--cuda-path={cuda_recorder}", "--offload-arch=sm_90", *BARE)
    sources = (tmp_path / "k.mlir", tmp_path / "main.cu")
    sources[0].write_text(OWN_SCALE, encoding="utf-8")
    sources[1].write_text(MAIN_WITH_SCALE, encoding="utf-8")
    run(*compiler, f"-I{INPUTS}", *sources, "-o", tmp_path / "app")
    from_mlir, from_cpp = launches(tmp_path / "app")
    assert from_mlir.endswith("from MLIR 0x5")
    assert from_cpp.endswith("from C++ 0x40000000")
    # Each from a fat binary of its own.
    assert {line.split(":")[0] for line in (from_mlir, from_cpp)} == {"scale of 1", "scale of 2"}


@pytest.mark.llvm(22)
def test_where_cpp_launches_a_kernel_of_such_a_file_the_cure_is_named(
    mlir_offload: list[str], cuda_recorder: Path, tmp_path: Path
) -> None:
    # clang's device code refers to each kernel that its host code launches.
    compiler = (*mlir_offload, f"--cuda-path={cuda_recorder}", "--offload-arch=sm_90", *BARE)
    sources = (tmp_path / "k.mlir", tmp_path / "main.cu")
    sources[0].write_text(OWN_SCALE.replace("@other", "@shift"), encoding="utf-8")
    text = MAIN_WITH_SCALE.replace("int main() {", "int main() { shift<<<1, 1>>>(0, 1);")
    sources[1].write_text(f'extern "C" void __attribute__((global)) shift(char *, int);\n{text}')
    said = run(*compiler, f"-I{INPUTS}", *sources, "-o", tmp_path / "app", status=1)
    assert (
        "k.mlir was device-linked separately, because other objects have kernels of the same names"
        in said
    )
    assert "rename these" in said
    sources[0].write_text(OWN_SCALE.replace("@other", "@shift").replace("@scale", "@own"))
    run(*compiler, f"-I{INPUTS}", *sources, "-o", tmp_path / "app")


@pytest.mark.llvm(22)
def test_device_code_in_a_form_that_clang_cannot_link_is_named_with_the_cure(
    mlir_offload: list[str], cuda_recorder: Path, tmp_path: Path
) -> None:
    compiler = (*mlir_offload, f"--cuda-path={cuda_recorder}", "--offload-arch=sm_90")
    sources = (INPUTS / "cuda_caller.cu", INPUTS / "cuda_callee.mlir")
    form = ("--device-code=object", *BARE)
    said = run(*compiler, *form, *sources, "-o", tmp_path / "app", status=1)
    assert "not declared __global__ in all source files" in said
    assert "--device-code=bitcode" in said


@pytest.mark.parametrize(
    ("options", "said", "status"),
    [
        (("--offload-arch=host",), "CUDA C++ is compiled for GPUs only", 2),
        (("--offload-arch=sm_90", "-S"), "-S does not go with CUDA C++", 2),
    ],
)
@pytest.mark.llvm(22)
def test_what_cpp_cannot_be_compiled_to_is_refused(
    mlir_offload: list[str], options: tuple[str, ...], said: str, status: int, tmp_path: Path
) -> None:
    output = ("-o", str(tmp_path / "out"))
    assert said in run(*mlir_offload, *options, INPUTS / "cuda_caller.cu", *output, status=status)


@pytest.mark.llvm(22)
def test_a_header_that_clang_wants_and_cuda_lacks_is_named(
    mlir_offload: list[str], cuda_recorder: Path, tmp_path: Path
) -> None:
    # Two headers of CUDA that lack what clang includes behind them.
    include = tmp_path / "root" / "include"
    include.mkdir(parents=True)
    for name in ("bin", "nvvm", "lib64"):
        (tmp_path / "root" / name).symlink_to((cuda_recorder / name).resolve())
    for name in ("cuda.h", "cuda_runtime.h"):
        (include / name).write_text("#define CUDA_VERSION 13000\n")
    compiler = (*mlir_offload, f"--cuda-path={tmp_path / 'root'}", "--offload-arch=sm_90", "-c")
    said = run(*compiler, INPUTS / "cuda_caller.cu", "-o", tmp_path / "x.o", status=3)
    assert re.search(r"clang of LLVM \d+ includes \S+, which this CUDA 13\.0\.\d+ lacks", said)
    assert "-nocudainc" in said


@pytest.mark.parametrize("major", RELEASES)
def test_stubs_are_named_as_clang_names_them(major: int, tmp_path: Path) -> None:
    output = tmp_path / "host.ll"
    run(
        *(f"/usr/lib/llvm-{major}/bin/clang", "-x", "cuda", "--cuda-host-only", "-std=c++17", "-w"),
        *(*BARE, "-fgpu-rdc", "--offload-new-driver", "-S", "-emit-llvm"),
        *(INPUTS / "cuda_names.cu", "-o", output),
    )
    text = output.read_text(encoding="utf-8")
    names = dict(
        re.findall(r'^@(\.offloading\.entry_name\S*) = .* c"(\w+)\\00"', text, re.MULTILINE)
    )
    entries = re.findall(
        r"^@\.offloading\.entry\..*ptr @(\w*__device_stub__\w*), ptr @(\S+?),", text, re.MULTILINE
    )
    # clang adds its hash of the file to the names of kernels that no other file sees.
    stubs = {re.sub(r"__intern__\w+$", "", names[name]): stub for stub, name in entries}
    assert len(stubs) == 26
    assert {kernel: find_stub_symbol(kernel) or "unknown" for kernel in stubs} == stubs


@pytest.mark.llvm(22)
def test_device_code_of_clang_that_mlir_imports_runs_on_the_cpu(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, caller = tmp_path / "imported.cu", tmp_path / "caller.mlir"
    module, text = tmp_path / "imported.bc", tmp_path / "imported.mlir"
    source.write_text(IMPORTED)
    caller.write_text(LAUNCHES_IMPORTED)
    clang = ("/usr/lib/llvm-22/bin/clang", "-Wno-unknown-cuda-version", "-O1", "-emit-llvm", "-c")
    bare = (*BARE, f"--cuda-path={cuda_root()}")
    run(*clang, *bare, "--cuda-device-only", "--cuda-gpu-arch=sm_90", source, "-o", module)
    run("/usr/lib/llvm-22/bin/mlir-translate", "--import-llvm", module, "-o", text)
    aliases, _, body = text.read_text().partition("module attributes {")
    for word in ("ptx_kernelcc", '"sm_90"', "@llvm.compiler.used", "protected"):
        assert word in body
    text.write_text(f"{aliases}gpu.module @imported {{{body.partition('{')[2]}")

    objects = []
    for file in (text, caller):
        run(*mlir_offload, "--offload-arch=host", "-c", file, "-o", file.with_suffix(".o"))
        objects.append(file.with_suffix(".o"))
    run(*mlir_offload, *objects, "-o", tmp_path / "program")

    run(tmp_path / "program", status=61)


@pytest.mark.llvm(22)
@pytest.mark.parametrize("stage", ["-c -o kernel.o", "--offload-device-only"])
def test_dependency_files_have_the_headers_of_each_architecture(
    mlir_offload: list[str], tmp_path: Path, stage: str
) -> None:
    source = tmp_path / "kernel.cu"
    archs = {"host.h": "!defined(__CUDA_ARCH__)", "sm 80.h": "__CUDA_ARCH__ == 800", "sm_90.h": "1"}
    for name in archs:
        (tmp_path / name).touch()
    cases = (f'#elif {test}\n#include "{name}"\n' for name, test in archs.items())
    source.write_text(f"#if 0\n{''.join(cases)}#endif\n__attribute__((device)) void f() {{}}\n")
    words = (*BARE, "--offload-arch=sm_80,sm_90", "-MMD", "-MF", "kernel.d", *stage.split())
    subprocess.run([*mlir_offload, source.name, *words], cwd=tmp_path, check=True)
    needed = set(read_prerequisites((tmp_path / "kernel.d").read_text()))
    assert needed == {source.name, *(set(archs) - ({"host.h"} if "only" in stage else set()))}
