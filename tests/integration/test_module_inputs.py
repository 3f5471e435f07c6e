"""Host modules in LLVM IR, ours and clang's, as inputs of a link: text and bitcode."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.link.objects import ObjectContents, read_module
from mlir_offload.toolchain.target import host_triple

INPUTS = Path(__file__).parent / "inputs"
SQUARE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "square.mlir"
MAIN = SQUARE.with_name("main.c")
EVERY = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (16, 19, 22)]


def _run(*argv: object, **environment: str) -> str:
    words = [str(word) for word in argv]
    variables = {**os.environ, **environment}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("major", EVERY)
def test_bitcode_of_a_program_links_for_the_cpu(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    release, module = f"--for-clang={major}", tmp_path / "full.bc"
    compiled = (release, "--offload-arch=host", "-emit-llvm", SQUARE, "-o", module)
    _run(*mlir_offload, *compiled)

    _run(*mlir_offload, release, MAIN, module, "-o", tmp_path / "app")

    assert _run(tmp_path / "app") == "square: ok, 1000 elements\n"


@pytest.mark.llvm(22)
def test_text_tells_the_link_which_runtimes_and_libraries_it_needs(
    mlir_offload: list[str], gpu_recorders: tuple[str, str], tmp_path: Path
) -> None:
    module, archs = tmp_path / "full.ll", "--offload-arch=sm_80,gfx90a,host"
    _run(*mlir_offload, *gpu_recorders, archs, "-S", "-emit-llvm", SQUARE, "-o", module)

    _run(*mlir_offload, *gpu_recorders, MAIN, module, "-o", tmp_path / "app")

    said = _run(tmp_path / "app", MLIR_OFFLOAD_DEVICE="host").splitlines()
    assert said[-1] == "square: ok, 1000 elements"
    assert {"__cudaRegisterFatBinary", "__hipRegisterFatBinary"} <= {
        line.split()[0] for line in said
    }


@pytest.mark.llvm(22)
def test_text_and_bitcode_of_a_module_hold_the_same(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    text, bitcode = tmp_path / "full.ll", tmp_path / "full.bc"
    archs = ("--offload-arch=sm_80,host", "-emit-llvm", SQUARE)
    _run(*mlir_offload, "-S", *archs, "-o", text)
    _run("/usr/lib/llvm-22/bin/clang", "-x", "ir", "-emit-llvm", "-c", text, "-o", bitcode)

    (one,), (other,) = read_module(text), read_module(bitcode)

    assert _images(one) == _images(other)
    assert one.runtime_symbols == other.runtime_symbols
    assert {entry.kind for entry in other.entries} == {"cuda", "openmp"}


def _images(contents: ObjectContents) -> list[tuple[str, str, bytes]]:
    return [(image.kind, image.arch, image.content.whole()) for image in contents.images]


@pytest.mark.parametrize("major", EVERY)
def test_clangs_bitcode_of_cuda_cpp_is_linked_with_libcudart(
    major: int, mlir_offload: list[str], gpu_recorders: tuple[str, str], tmp_path: Path
) -> None:
    module, cuda = tmp_path / "program.bc", gpu_recorders[0]
    bare = ("-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version", "--offload-arch=sm_80")
    rdc = ("-fgpu-rdc", "--offload-new-driver", "-foffload-lto", "-emit-llvm", "-c")
    clang = (f"/usr/lib/llvm-{major}/bin/clang++", "-x", "cuda", cuda)
    _run(*clang, *bare, *rdc, INPUTS / "cuda_program.cu", "-o", module)

    _run(*mlir_offload, cuda, f"--for-clang={major}", module, "-o", tmp_path / "app")

    recorded = _run(
        tmp_path / "app", RECORD_ARGUMENTS="scale=848 narrow=811228", RECORD_UNKNOWN="1"
    )
    assert "cudaLaunchKernel" in recorded


OPENMP = """
int main(void) {
  int value = 3;
#pragma omp target map(tofrom: value)
  value *= 7;
  return value;
}
"""


@pytest.mark.parametrize("major", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)])  # fmt: skip
def test_clangs_bitcode_of_openmp_is_linked_with_libomptarget(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    source, module, app = (tmp_path / name for name in ("main.c", "main.bc", "app"))
    source.write_text(OPENMP, encoding="utf-8")
    openmp = ("-fopenmp", f"-fopenmp-targets={host_triple()}", "-emit-llvm", "-c")
    _run(f"/usr/lib/llvm-{major}/bin/clang", *openmp, source, "-o", module)

    _run(*mlir_offload, f"--for-clang={major}", module, "-o", app)

    environment = {"OMP_TARGET_OFFLOAD": "mandatory"}
    assert subprocess.run([app], env=environment, check=False).returncode == 21


@pytest.mark.llvm(22)
@pytest.mark.parametrize("words", [("-c",), ("-S", "-emit-llvm"), ("-###", "-c"), ("bundle",)])
def test_a_module_of_device_code_is_not_compiled_for_the_host(
    words: tuple[str, ...], mlir_offload: list[str], tmp_path: Path
) -> None:
    module = tmp_path / "kernels.ll"
    module.write_text(
        'target triple = "nvptx64-nvidia-cuda"\n'
        "define ptx_kernel void @k(ptr addrspace(1) %p) {\n  ret void\n}\n"
    )
    call = [*mlir_offload, *words, str(module), "-o", str(tmp_path / "out")]

    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 4, done.stderr
    assert "kernels.ll: the module is for nvptx64-nvidia-cuda, not for this machine" in done.stderr
    assert not (tmp_path / "out").exists()
