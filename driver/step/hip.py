"""Steps on code for AMD GPUs."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.package.fat_binary import write_fat_binary
from mlir_offload.driver.step.group import (
    ftz_option,
    kernels_option,
    output_option,
    rdc_option,
    read_text,
    release_option,
    source_argument,
    step,
    write_text,
)
from mlir_offload.offload.container.packager import image_argument
from mlir_offload.offload.device.amdgpu_image import check_resolved
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.translate.amdgpu import amdgpu_device_ir


@step.command("amdgpu-ir")
@source_argument
@kernels_option
@rdc_option
@ftz_option
@release_option
@click.option("--code-object", "version", type=int, required=True, help="its version: 4, 5, 6")
@output_option
def _amdgpu_ir(  # noqa: PLR0913 (one parameter for each option)
    source: Path,
    kernels: tuple[str, ...],
    *,
    rdc: bool,
    ftz: bool,
    major: int,
    version: int,
    output: Path,
) -> None:
    """Prepare the LLVM IR of a device module for the AMDGPU back end."""
    made = amdgpu_device_ir(
        read_text(source),
        kernels=kernels,
        llvm_major=major,
        code_object=version,
        keeps_functions=rdc,
        flushes_subnormals=ftz,
    )
    write_text(output, made)


@step.command("amdgpu-check")
@source_argument
@click.option("--arch", required=True)
@click.option("--library", "libraries", multiple=True)
@click.option("--location", default="", help="the file that errors name")
def _amdgpu_check(source: Path, arch: str, libraries: tuple[str, ...], location: str) -> None:
    """Fail where an image asks for what the device libraries that it was compiled with lack."""
    with open_view(source) as view:
        check_resolved(view, arch=arch, libraries=libraries, location=location)


@step.command("hip-fat-binary")
@click.option("--image", "images", multiple=True, required=True, metavar="file=,arch=,kind=hip")
@click.option("--for-clang", "consumer", type=int, required=True)
@output_option
def _hip_fat_binary(images: tuple[str, ...], consumer: int, output: Path) -> None:
    """Write linked code objects into one bundle, as the HIP runtime loads it."""
    arguments = [image_argument(text.split(",")) for text in images]
    files = [(argument, name) for argument in arguments for name in argument.files]
    write_fat_binary(files, consumer, output, method="")
