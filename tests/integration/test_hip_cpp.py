"""HIP C++ and MLIR in one call, each launching kernels of the other, without the vendor's headers.

A HIP runtime that records the calls shows which kernel a launch names and its arguments.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

INPUTS = Path(__file__).parent / "inputs"
RELEASES = [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
BARE = ("-nogpuinc", "-nogpulib")


def run(*argv: str | Path, status: int = 0) -> str:
    words = [str(word) for word in argv]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout + (done.stderr if status else "")


@pytest.mark.parametrize("major", RELEASES)
def test_cpp_and_mlir_launch_the_kernels_of_each_other(
    major: int, mlir_offload: list[str], rocm_recorder: Path, tmp_path: Path
) -> None:
    app = tmp_path / "app"
    compiler = (*mlir_offload, f"--llvm={major}", f"--rocm-path={rocm_recorder}")
    sources = (INPUTS / "hip_both.hip", INPUTS / "hip_both.mlir")
    run(*compiler, "--offload-arch=gfx90a,gfx1030", *BARE, *sources, "-o", app)
    made = run("env", "RECORD_ARGUMENTS=scale=848 shift=848", app).splitlines()
    launches = [line.split(" on ")[0] for line in made if line.startswith("hipLaunchKernel")]
    assert launches == [
        "hipLaunchKernel scale grid 2 1 1 block 32 1 1 shared 16",
        "hipLaunchKernel shift grid 1 1 1 block 1 1 1 shared 0",
    ]
    assert [line.split(" with ")[1] for line in made if line.startswith("hipLaunchKernel")] == [
        "0000000000000000 00002040 4000000000000000",
        "0000000000000000 00002040 0700000000000000",
    ]


@pytest.mark.llvm(19)
def test_with_the_headers_of_the_vendor_device_libraries_are_linked_in(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    if not Path("/usr/include/hip/hip_runtime.h").exists():
        pytest.skip("no libamdhip64-dev")
    source, made = tmp_path / "k.hip", tmp_path / "k.o"
    source.write_text(
        "#include <hip/hip_runtime.h>\n"
        "__global__ void k(float *x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }\n"
    )
    compiler = (*mlir_offload, "--llvm=19", "--rocm-path=/usr", "--offload-arch=gfx90a")
    run(*compiler, "-c", source, "-o", made)
    assert "kernel _Z1kPf" in run(*mlir_offload, "inspect", made)


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("options", "said", "status"),
    [
        (("--offload-arch=sm_90", "-c"), "HIP C++ is compiled for GPUs of AMD's only", 2),
        (("--offload-arch=gfx90a", "-S"), "-S does not go with CUDA C++ and HIP C++", 2),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_cure(
    options: tuple[str, ...],
    said: str,
    status: int,
    mlir_offload: list[str],
    tmp_path: Path,
) -> None:
    source, made = INPUTS / "hip_both.hip", tmp_path / "x.o"
    told = run(*mlir_offload, "--llvm=22", *options, source, "-o", made, status=status)
    assert said in told


@pytest.mark.llvm(22)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#include <hip/gone.h>\n", "clang of LLVM 22 finds no complete HIP"),
        (
            "int size = __AMDGCN_WAVEFRONT_SIZE;\n",
            "the HIP headers are older than clang of LLVM 22",
        ),
    ],
)
def test_headers_that_clang_cannot_use_are_an_error_with_its_cure(
    text: str, said: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "k.hip"
    source.write_text(text)
    compiler = (*mlir_offload, "--llvm=22", "--offload-arch=gfx90a", *BARE)
    told = run(*compiler, "-c", source, "-o", tmp_path / "k.o", status=3)
    assert said in told
    assert "-nogpuinc" in told
