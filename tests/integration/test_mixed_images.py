"""Device images of ours in objects of clang, and images of clang in objects of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.checked_run import run_checked, written
from support.cuda_tools import cuda_directory

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.link.objects import read_objects

INPUTS = Path(__file__).parent / "inputs"
TWO = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
BARE = ("-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version", "--offload-arch=sm_80")
RDC = ("-fgpu-rdc", "--offload-new-driver")
# A kernel of MLIR; the host code of CUDA C++ launches it by a definition without a body of its own.
SCALE = """
gpu.module @kernels {
  gpu.func @scale(%x: !llvm.ptr, %a: f32) kernel {
    llvm.store %a, %x : f32, !llvm.ptr
    gpu.return
  }
}
"""
OURS = """
module attributes {gpu.container_module} {
gpu.module @kernels {
  gpu.func @ours(%x: !llvm.ptr) kernel {
    gpu.return
  }
}
func.func @launch_ours(%x: !llvm.ptr) {
  %c1 = arith.constant 1 : index
  gpu.launch_func @kernels::@ours blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
      args(%x : !llvm.ptr)
  return
}
}
"""
HOST = """
#include "{bare}"
extern "C" __global__ void {kernel}(float *x, float a) {{}}
{before}
int main() {{
  {call}
  {kernel}<<<1, 1>>>(nullptr, 2.0f);
}}
"""


def _launched(program: Path) -> list[str]:
    recorded = run_checked(
        program, RECORD_ARGUMENTS="scale=84 theirs=84 ours=8", MLIR_OFFLOAD_DEVICE="cuda"
    )
    calls = [line.split() for line in recorded.splitlines() if "LaunchKernel" in line]
    return [word for call in calls for word in call if word in {"scale", "theirs", "ours"}]


@pytest.mark.parametrize("linker", ["clang", "mlir-offload"])
@pytest.mark.parametrize("major", TWO)
def test_an_image_of_ours_that_clang_embeds_is_linked(
    major: int,
    linker: str,
    mlir_offload: list[str],
    gpu_recorders: tuple[str, str],
    tmp_path: Path,
) -> None:
    release, cuda = f"--for-clang={major}", gpu_recorders[0]
    kernels, image = tmp_path / "kernels.o", tmp_path / "kernels.bc"
    source = written(tmp_path / "kernels.mlir", SCALE)
    run_checked(*mlir_offload, release, "-c", "--offload-arch=sm_80", source, "-o", kernels)
    run_checked(*mlir_offload, "extract", kernels, "--arch=sm_80", "-o", image)
    packaged, main = tmp_path / "kernels.offload", tmp_path / "main.o"
    described = f"--image=file={image},triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda"
    run_checked(*mlir_offload, "package", release, described, "-o", packaged)
    host = HOST.format(bare=INPUTS / "cuda_bare.h", kernel="scale", before="", call="")
    clang = f"/usr/lib/llvm-{major}/bin/clang++"
    embed = ("--cuda-host-only", "-Xclang", f"-fembed-offload-object={packaged}")
    run_checked(
        clang, *RDC, *BARE, cuda, *embed, "-c", written(tmp_path / "main.cu", host), "-o", main
    )

    library = Path(cuda.removeprefix("--cuda-path=")) / "lib64"
    if linker == "clang":
        tools = load_abi(major).cuda_path_arguments(cuda_directory(tmp_path / "cuda", major))
        found = (f"-L{library}", f"-Wl,-rpath,{library}", "-lcudart")
        path = f"{tmp_path / 'cuda' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        run_checked(
            clang, "--offload-link", *tools, main, *found, "-o", tmp_path / "app", PATH=path
        )
    else:
        run_checked(*mlir_offload, release, cuda, main, "-o", tmp_path / "app")

    assert _launched(tmp_path / "app") == ["scale"]


@pytest.mark.parametrize("major", TWO)
def test_clangs_image_beside_ours_in_one_object_is_linked(
    major: int, mlir_offload: list[str], gpu_recorders: tuple[str, str], tmp_path: Path
) -> None:
    release, cuda = f"--for-clang={major}", gpu_recorders[0]
    module, both, theirs = tmp_path / "ours.bc", tmp_path / "both.o", tmp_path / "theirs.o"
    source = written(tmp_path / "ours.mlir", OURS)
    run_checked(*mlir_offload, release, "-emit-llvm", "--offload-arch=sm_80", source, "-o", module)
    before = 'extern "C" void launch_ours(void *);'
    call = "launch_ours(nullptr);"
    host = HOST.format(bare=INPUTS / "cuda_bare.h", kernel="theirs", before=before, call=call)
    clang, main = f"/usr/lib/llvm-{major}/bin/clang++", written(tmp_path / "main.cu", host)
    run_checked(
        clang,
        *RDC,
        *BARE,
        cuda,
        "-foffload-lto",
        "--cuda-device-only",
        "-emit-llvm",
        "-c",
        main,
        "-o",
        tmp_path / "theirs.bc",
    )
    described = (
        f"--image=file={tmp_path / 'theirs.bc'},triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda"
    )
    packaged = tmp_path / "theirs.offload"
    run_checked(*mlir_offload, "package", release, described, "-o", packaged)
    embed = ("-Xclang", f"-fembed-offload-object={packaged}", "-Wno-override-module")
    run_checked(clang, "-c", module, *embed, "-o", both)
    run_checked(clang, *RDC, *BARE, cuda, "--cuda-host-only", "-c", main, "-o", theirs)

    run_checked(*mlir_offload, release, cuda, theirs, both, "-o", tmp_path / "app")

    (held,) = read_objects(both)
    assert [image.arch for image in held.images] == ["sm_80", "sm_80"]
    assert _launched(tmp_path / "app") == ["ours", "theirs"]
