"""Objects whose device code plain clang has linked already, as docs/howto/ci.md tells to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.cuda_tools import cuda_directory

from mlir_offload.offload.abi import load_abi

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.mark.parametrize(
    "major", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
)
def test_a_final_object_of_cpu_code_links_and_runs(
    major: int, mlir_offload: list[str], tmp_path: Path
) -> None:
    assert _run(mlir_offload, major, tmp_path, "host") == "square: ok, 1000 elements\n"


@pytest.mark.llvm(22)
def test_a_final_object_of_gpu_and_cpu_code_leaves_no_device_code_to_the_link(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    assert _run(mlir_offload, 22, tmp_path, "sm_90,host") == "square: ok, 1000 elements\n"
    said = subprocess.run(
        [*mlir_offload, "inspect", tmp_path / "app"], capture_output=True, text=True, check=True
    )
    assert "cuda nvptx64-nvidia-cuda sm_90: cubin" in said.stdout
    assert said.stdout.count("linked already") == 2


def _run(mlir_offload: list[str], major: int, folder: Path, archs: str) -> str:
    """Return what the program says, its object made final by clang."""
    release = f"--llvm={major}"
    square, made, final = EXAMPLES / "square.mlir", folder / "square.o", folder / "final.o"
    compiled = [*mlir_offload, release, "-c", "--device-code=object", f"--offload-arch={archs}"]
    subprocess.run([*compiled, square, "-o", made], check=True)
    cuda = load_abi(major).cuda_path_arguments(cuda_directory(folder / "cuda", major))
    clang = f"/usr/lib/llvm-{major}/bin/clang"
    subprocess.run([clang, "-r", "--offload-link", *cuda, made, "-o", final], check=True)
    app = folder / "app"
    subprocess.run([*mlir_offload, release, final, EXAMPLES / "main.c", "-o", app], check=True)
    done = subprocess.run(
        [app], env={"MLIR_OFFLOAD_DEVICE": "host"}, capture_output=True, text=True, check=True
    )
    return done.stdout


STRIDED = """func.func @main() -> i32 {
  %c1 = arith.constant 1 : index
  %seven = arith.constant 7 : i32
  %a = memref.alloca() : memref<2x2xi32>
  %b = memref.alloca() : memref<2xi32>
  memref.store %seven, %a[%c1, %c1] : memref<2x2xi32>
  %column = memref.subview %a[0, 1] [2, 1] [1, 1] : memref<2x2xi32> to memref<2xi32, strided<[2], offset: 1>>
  memref.copy %column, %b : memref<2xi32, strided<[2], offset: 1>> to memref<2xi32>
  %v = memref.load %b[%c1] : memref<2xi32>
  return %v : i32
}
"""


@pytest.mark.llvm(22)
@pytest.mark.parametrize("flags", [(), ("-c", "-fno-gpu-rdc")], ids=["linked", "final"])
def test_a_program_without_kernels_copies_strided_memory(
    flags: tuple[str, ...], mlir_offload: list[str], tmp_path: Path
) -> None:
    source, made = tmp_path / "copy.mlir", tmp_path / "made"
    source.write_text(STRIDED)
    subprocess.run([*mlir_offload, "--offload-arch=host", *flags, source, "-o", made], check=True)
    if flags:
        made.rename(tmp_path / "copy.o")
        clang = "/usr/lib/llvm-22/bin/clang"
        subprocess.run([clang, tmp_path / "copy.o", "-o", made], check=True)

    assert subprocess.run([made], check=False).returncode == 7
