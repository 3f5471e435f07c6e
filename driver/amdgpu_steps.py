"""The steps that only images for AMD GPUs take."""

from __future__ import annotations

from pathlib import Path

import click

_PATH = click.Path(path_type=Path)


@click.command("amdgpu-ir")
@click.argument("source", type=_PATH)
@click.option("--kernel", "kernels", multiple=True)
@click.option("--llvm", "major", type=int, required=True)
@click.option("--code-object", "version", type=int, required=True, help="its version: 4, 5, 6")
@click.option("-o", "--output", type=_PATH, required=True)
def amdgpu_ir(
    source: Path, kernels: tuple[str, ...], major: int, version: int, output: Path
) -> None:
    """Prepare the LLVM IR of a device module for the AMDGPU back end."""
    from mlir_offload.translate.amdgpu import amdgpu_device_ir

    text = source.read_text(encoding="utf-8", errors="surrogateescape")
    made = amdgpu_device_ir(text, kernels=kernels, llvm_major=major, code_object=version)
    output.write_text(made, encoding="utf-8", errors="surrogateescape")


@click.command("amdgpu-check")
@click.argument("source", type=_PATH)
@click.option("--arch", required=True)
@click.option("--library", "libraries", multiple=True)
@click.option("--location", default="", help="the file that errors name")
def amdgpu_check(source: Path, arch: str, libraries: tuple[str, ...], location: str) -> None:
    """Fail where an image asks for what the device libraries that it was compiled with lack."""
    from mlir_offload.offload.amdgpu_image import check_resolved
    from mlir_offload.toolchain.byte_view import open_view

    with open_view(source) as view:
        check_resolved(view, arch=arch, libraries=libraries, location=location)
