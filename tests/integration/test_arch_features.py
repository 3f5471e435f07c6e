"""One kernel written for several GPUs with instructions that only those have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlir_offload.offload.device.code import image_kernels
from mlir_offload.offload.link.objects import read_objects

SOURCE = Path(__file__).parent / "inputs" / "arch_features.mlir"
pytestmark = pytest.mark.llvm(22)


def compiled(compiler: list[str], source: Path, output: Path, *options: str) -> str:
    """Return what is said where the source cannot be compiled, an empty text where it can."""
    words = [*compiler, "--llvm=22", "-c", *options, str(source), "-o", str(output)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=output.parent, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    ("options", "archs"),
    [
        (("--device-code=object",), ["gfx1100", "gfx90a", "sm_100a", "sm_80", "sm_90a"]),
        (("--offload-arch=sm_90a,gfx1100,host",), ["", "gfx1100", "sm_90a"]),
    ],
    ids=["what is attached", "some of it and the CPU"],
)
def test_each_gpu_gets_the_variant_that_is_written_for_it(
    options: tuple[str, ...], archs: list[str], mlir_offload: list[str], tmp_path: Path
) -> None:
    made = tmp_path / "made.o"
    assert compiled(mlir_offload, SOURCE, made, *options) == ""
    (contents,) = read_objects(made)
    assert sorted(image.arch for image in contents.images) == archs
    assert all("k" in image_kernels(image.content) for image in contents.images)
    assert {entry.name for entry in contents.entries} == {"k"}


@pytest.mark.parametrize(
    ("chip", "other", "intrinsic"),
    [
        ("sm_90a", "sm_90", "llvm.nvvm.setmaxnreg"),
        ("gfx1100", "gfx1030", "llvm.amdgcn.wmma"),
    ],
)
def test_a_gpu_without_the_instruction_is_named_with_it(
    chip: str, other: str, intrinsic: str, mlir_offload: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "p.mlir"
    source.write_text(SOURCE.read_text().replace(f'"{chip}"', f'"{other}"'))
    options = (f"--offload-arch={other}", "--device-code=object")
    said = compiled(mlir_offload, source, tmp_path / "p.o", *options)
    assert f"{other} has no instruction for {intrinsic}" in said
