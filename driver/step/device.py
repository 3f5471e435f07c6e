"""Steps on device code that run in process."""

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


@step.command("ptx-time")
@source_argument
@click.option("--time", "seconds", type=int, required=True, help="seconds since 1970")
@output_option
def _ptx_time(source: Path, seconds: int, output: Path) -> None:
    """Give the files that PTX names a time and a size, so that ptxas does not ask for their own."""
    from mlir_offload.translate.device import with_file_times

    write_text(output, with_file_times(read_text(source), seconds))


@step.command("unwrap")
@source_argument
@click.option("--triple", required=True)
@rdc_option
@output_option
def _unwrap(source: Path, triple: str, *, rdc: bool, output: Path) -> None:
    """Make the lowered device module a module of its own for mlir-translate."""
    from mlir_offload.translate.lower import unwrap_device

    write_text(output, unwrap_device(read_text(source), triple, keeps_functions=rdc))


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
    from mlir_offload.translate.device import nvptx_device_ir

    text = nvptx_device_ir(
        read_text(source),
        kernels=kernels,
        llvm_major=major,
        keeps_functions=rdc,
        flushes_subnormals=ftz,
    )
    write_text(output, text)


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
    from mlir_offload.translate.amdgpu import amdgpu_device_ir

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
    from mlir_offload.offload.device.amdgpu_image import check_resolved
    from mlir_offload.toolchain.byte_view import open_view

    with open_view(source) as view:
        check_resolved(view, arch=arch, libraries=libraries, location=location)


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
    from mlir_offload.toolchain.errors import SourceError
    from mlir_offload.translate.spirv.module import spirv_device_ir

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
    from mlir_offload.offload.device.spirv_image import check_spirv_kernels
    from mlir_offload.offload.host.module import kernel_signatures
    from mlir_offload.toolchain.byte_view import open_view

    signatures = kernel_signatures(read_text(ir))
    with open_view(source) as view:
        expected = {name: signatures[name] for name in kernels}
        check_spirv_kernels(view, expected, location=location)


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


@step.command("hip-fat-binary")
@click.option("--image", "images", multiple=True, required=True, metavar="file=,arch=,kind=hip")
@click.option("--for-clang", "consumer", type=int, required=True)
@output_option
def _hip_fat_binary(images: tuple[str, ...], consumer: int, output: Path) -> None:
    """Write linked code objects into one bundle, as the HIP runtime loads it."""
    from mlir_offload.driver.package.fat_binary import write_fat_binary
    from mlir_offload.offload.container.packager import image_argument

    arguments = [image_argument(text.split(",")) for text in images]
    files = [(argument, name) for argument in arguments for name in argument.files]
    write_fat_binary(files, consumer, output, method="")


@step.command("runtime-symbols")
@source_argument
@click.option("--weak", type=PATH, required=True, help="where the names of public symbols go")
@output_option
def _runtime_symbols(source: Path, weak: Path, output: Path) -> None:
    """Write the names of the symbols that are the runtime's own, as llvm-objcopy reads them."""
    from mlir_offload.offload.runtime import read_runtime_symbols

    symbols = read_runtime_symbols(source)
    write_text(output, "".join(f"{name}\n" for name in symbols.internal))
    write_text(weak, "".join(f"{name}\n" for name in symbols.public))
