"""Steps on code for devices that take SPIR-V."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.step.group import (
    PATH,
    kernels_option,
    output_option,
    rdc_option,
    read_text,
    release_option,
    source_argument,
    step,
    write_text,
)
from mlir_offload.offload.device.spirv_image import check_spirv_kernels
from mlir_offload.offload.host.module import kernel_signatures
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.spirv.module import spirv_device_ir


@step.command("spirv-ir")
@source_argument
@kernels_option
@rdc_option
@release_option
@click.option("--location", default="", help="the file that errors name")
@output_option
def _spirv_ir(
    source: Path, kernels: tuple[str, ...], *, rdc: bool, major: int, location: str, output: Path
) -> None:
    """Prepare the LLVM IR of a device module for the SPIR-V back end."""
    try:
        made = spirv_device_ir(
            read_text(source), kernels=kernels, llvm_major=major, keeps_functions=rdc
        )
    except SourceError as error:
        error.location = error.location or location
        raise
    write_text(output, made)


@step.command("spirv-check")
@source_argument
@kernels_option
@click.option("--ir", type=PATH, required=True, help="the LLVM IR that it is made of")
@click.option("--location", default="", help="the file that errors name")
def _spirv_check(source: Path, kernels: tuple[str, ...], ir: Path, location: str) -> None:
    """Fail where SPIR-V lacks a kernel, or one takes other parameters than the host passes."""
    signatures = kernel_signatures(read_text(ir))
    with open_view(source) as view:
        expected = {name: signatures[name] for name in kernels}
        check_spirv_kernels(view, expected, location=location)
