"""Device bitcode for NVIDIA GPUs, made without a toolkit or for GPUs that its ptxas does not know."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.link.objects import read_module, read_objects
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.errors import ToolchainError

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
FORMS = [("-c", "o"), ("-emit-llvm", "bc")]


def _compile(
    mlir_offload: list[str], name: str, *options: str | Path
) -> subprocess.CompletedProcess[str]:
    argv = [*mlir_offload, *map(str, options), str(EXAMPLES / name)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.llvm(22)
@pytest.mark.parametrize(("form", "ending"), FORMS, ids=["object", "module"])
@pytest.mark.parametrize("options", [("--offload-arch=sm_60",), ("--offload-arch=sm_70", "--cuda-path=none")], ids=["old", "none"])  # fmt: skip
def test_bitcode_needs_no_ptxas(
    options: tuple[str, ...], form: str, ending: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    output = tmp_path / f"square.{ending}"

    done = _compile(mlir_offload, "square.mlir", form, *options, "-o", output)

    assert (done.returncode, done.stderr) == (0, "")
    (made,) = read_objects(output) if ending == "o" else read_module(output)
    arch = options[0].partition("=")[2]
    assert [(image.kind, image.arch) for image in made.images] == [("cuda", arch)]


@pytest.mark.llvm(22)
def test_a_kernel_that_calls_libdevice_says_so_or_leaves_it_to_the_link(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    options = (
        "-emit-llvm",
        "--cuda-path=none",
        "--offload-arch=sm_70",
        "-o",
        str(tmp_path / "s.bc"),
    )

    refused = _compile(mlir_offload, "saxpy.mlir", *options)
    taken = _compile(mlir_offload, "saxpy.mlir", "-nogpulib", *options)

    assert refused.returncode != 0
    assert "a kernel calls math functions of libdevice" in refused.stderr
    assert "with -nogpulib" in refused.stderr
    assert (taken.returncode, taken.stderr) == (0, "")
    (made,) = read_module(tmp_path / "s.bc")
    functions = {
        one.name: one.is_declaration for one in read_bitcode(made.images[0].content).functions
    }
    assert [is_open for name, is_open in functions.items() if name.startswith("__nv_")] == [True]


@pytest.mark.parametrize("form", [("-c", "--device-code=object"), ("-c", "-fno-gpu-rdc"), ()], ids=["object", "final", "link"])  # fmt: skip
def test_code_for_a_gpu_is_not_assembled_without_a_toolkit(
    form: tuple[str, ...], mlir_offload: list[str], tmp_path: Path
) -> None:
    options = (*form, "--offload-arch=sm_80", "--cuda-path=none", "-o", str(tmp_path / "out"))

    done = _compile(mlir_offload, "square.mlir", *options)

    assert done.returncode == ToolchainError.exit_status
    assert "--cuda-path=none: assembling code for NVIDIA GPUs needs a CUDA toolkit" in done.stderr
