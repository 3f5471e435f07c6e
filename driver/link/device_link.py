"""How the linker wrapper links device code: its arguments, and the CUDA directory that it uses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.jobserver import JobSlots
from mlir_offload.driver.link.runtime import HostRuntime
from mlir_offload.driver.link.sanitizer import sanitizer_library
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.held_image import runs_on_host
from mlir_offload.offload.image import is_bitcode
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Environment
from mlir_offload.toolchain.target import AMDGPU_TRIPLE, NVPTX_TRIPLE, Kind, host_triple

_HEAD_BYTES = 4


class DeviceLink(Struct, frozen=True):
    """How device code is linked: arguments of clang, and the environment in which it finds tools."""

    arguments: tuple[str, ...]
    environment: Environment = ()


def ptx_feature(context: BuildContext, archs: Sequence[str]) -> str:
    """Return the PTX ISA for bitcode of these architectures, as clang spells a feature."""
    from mlir_offload.toolchain.ptx import ptx_isa_for

    return f"+ptx{min(ptx_isa_for(arch, context.consumer, context.cuda) for arch in archs)}"


def device_link(
    context: BuildContext, runtime: HostRuntime, directory: Path | None = None
) -> DeviceLink:
    """Return what the linker wrapper needs to link the device code of each kind.

    `directory` holds the tools of CUDA, where it is not the one for the link of all.
    """
    cuda = directory.absolute() if directory else _cuda_directory(context)
    abi = load_abi(context.consumer)
    # The wrapper (LLVM 19 and 22) links the images that it makes of several kinds, and several for the
    # host, in the order in which they got ready: one job at a time gives equal bytes, and libomptarget
    # runs the first image for the host.
    is_ordered = len(runtime.kinds) > 1 or any(map(_has_host_arch, _given_images(context)))
    slots = JobSlots(1) if is_ordered else context.executor.slots
    jobs = slots.for_child(takes_jobserver=abi.takes_jobserver)
    arguments = list(abi.jobs_arguments(jobs))
    if Kind.CUDA in runtime.kinds:
        arguments += abi.cuda_path_arguments(cuda)
        arguments += abi.device_opt_arguments(NVPTX_TRIPLE, context.options.opt_level)
        # Objects whose device code is linked already leave nothing to compile.
        if archs := runtime.archs(Kind.CUDA):
            feature = ptx_feature(context, archs)
            arguments += abi.device_feature_arguments(NVPTX_TRIPLE, feature)
    if Kind.HIP in runtime.kinds:
        arguments += abi.device_opt_arguments(AMDGPU_TRIPLE, context.options.opt_level)
    if Kind.OPENMP in runtime.kinds:
        # The wrapper links images for the host with --no-undefined; kernels may call libm.
        arguments += abi.host_device_arguments(host_triple())
        if context.llvm.has("ld.lld") and any(map(_is_host_bitcode, _given_images(context))):
            arguments += abi.host_bitcode_arguments(host_triple())
        # The wrapper would link a static library of a sanitizer into each image once more.
        if context.options.sanitizer:
            library = sanitizer_library(context, context.options.sanitizer)
            arguments.append(f"-Wl,--device-linker={host_triple()}={library}")
    # The clang that the wrapper runs looks on PATH: that of LLVM 19 for ptxas, where there is bitcode,
    # that of 22 for the linker of SPIR-V, by its bare name.
    folders = [str(cuda / "bin")] if Kind.CUDA in runtime.kinds else []
    if Kind.SYCL in runtime.kinds:
        folders.append(str(context.llvm.tool("clang-sycl-linker").resolve().parent))
    if not folders:
        return DeviceLink(tuple(arguments))
    path = os.pathsep.join((*folders, context.search_path))
    return DeviceLink(tuple(arguments), (("PATH", path),))


def _given_images(context: BuildContext) -> Iterator[PackagedImage]:
    return (image for item in context.given for image in item.images)


def _has_host_arch(image: PackagedImage) -> bool:
    return runs_on_host(image) and bool(image.arch)


def _is_host_bitcode(image: PackagedImage) -> bool:
    return runs_on_host(image) and is_bitcode(image.content.head(_HEAD_BYTES))


def _cuda_directory(context: BuildContext) -> Path:
    return context.workspace.absolute() / "cuda"


def make_cuda_directory(
    context: BuildContext, directory: Path | None = None, options: Sequence[str] = ()
) -> None:
    """Make the directory in which the linker wrapper finds the tools of CUDA, wherever they lie."""
    cuda = context.cuda
    if cuda is None or cuda.ptxas is None or cuda.nvlink is None or cuda.fatbinary is None:
        msg = "linking device code for CUDA needs ptxas, nvlink and fatbinary"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[cuda]', or give --cuda-path=")
    tools = ("--ptxas", cuda.ptxas, "--nvlink", cuda.nvlink, "--fatbinary", cuda.fatbinary)
    release = ("--cuda-version", str(cuda.version), "--for-clang", str(context.consumer))
    time = ("--time", str(context.source_time))
    limits = (f"--ptxas-arg={word}" for word in context.options.device_flags.ptxas_arguments)
    context.executor.step(
        "cuda-directory",
        (*tools, *release, *time, *limits, *options, "-o", directory or _cuda_directory(context)),
    )
