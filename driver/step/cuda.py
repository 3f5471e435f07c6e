"""Steps on code for NVIDIA GPUs."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.step.group import (
    PATH,
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
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.version import parse_version
from mlir_offload.translate.device import nvptx_device_ir, with_file_times


@step.command("ptx-time")
@source_argument
@click.option("--time", "seconds", type=int, required=True, help="seconds since 1970")
@output_option
def _ptx_time(source: Path, seconds: int, output: Path) -> None:
    """Give the files that PTX names a time and a size, so that ptxas does not ask for their own."""
    write_text(output, with_file_times(read_text(source), seconds))


@step.command("nvptx-ir")
@source_argument
@kernels_option
@rdc_option
@ftz_option
@release_option
@output_option
def _nvptx_ir(
    source: Path, kernels: tuple[str, ...], *, rdc: bool, ftz: bool, major: int, output: Path
) -> None:
    """Prepare the LLVM IR of a device module for the NVPTX back end."""
    text = nvptx_device_ir(
        read_text(source),
        kernels=kernels,
        llvm_major=major,
        keeps_functions=rdc,
        flushes_subnormals=ftz,
    )
    write_text(output, text)


@step.command("cuda-directory")
@click.option("--ptxas", type=PATH, required=True)
@click.option("--nvlink", type=PATH, required=True)
@click.option("--fatbinary", type=PATH, required=True)
@click.option("--cuda-version", "version", required=True)
@click.option("--time", "seconds", type=int, help="what ptxas takes for the time of source files")
@click.option("--ptxas-arg", "arguments", multiple=True, help="an argument for each call of ptxas")
@click.option("--ptx", multiple=True, metavar="sm_NN=FILE", help="PTX that fat binaries get")
@click.option("--for-clang", "consumer", type=int, required=True)
@output_option
def _cuda_directory(  # noqa: PLR0913, PLR0917 (one parameter for each option)
    ptxas: Path,
    nvlink: Path,
    fatbinary: Path,
    version: str,
    seconds: int | None,
    arguments: tuple[str, ...],
    ptx: tuple[str, ...],
    consumer: int,
    output: Path,
) -> None:
    """Put the tools of CUDA where the linker wrapper looks, `fatbinary` fitted to the wrapper."""
    from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory

    release = parse_version(version)
    if release is None:
        msg = f"--cuda-version={version} is no version"
        raise UsageError(msg, hint="write it as 13.0.88")
    kept = tuple((arch, Path(file)) for arch, _, file in (item.partition("=") for item in ptx))
    tools = CudaTools(
        release,
        ptxas,
        nvlink,
        fatbinary,
        source_time=seconds,
        ptxas_arguments=arguments,
        ptx=kept,
    )
    write_cuda_directory(output, tools, consumer)
