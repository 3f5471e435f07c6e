"""Links for NVIDIA GPUs: CUDA tools for the linker wrapper, fat binaries, requirements of bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.compile import kept_ptx
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import DeviceModule, LinkTools
from mlir_offload.driver.compile.linked_image import linked_images
from mlir_offload.driver.step.cuda_directory import CodeFile, CudaDirectory
from mlir_offload.offload.link.fatbinary_adapter import cubin_argument, ptx_argument
from mlir_offload.offload.link.finding import Finding
from mlir_offload.toolchain.errors import MlirOffloadError, ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.ptx import ptx_isa_for
from mlir_offload.toolchain.target import Kind, Target

if TYPE_CHECKING:
    from mlir_offload.offload.container.mob_manifest import MobManifest
    from mlir_offload.toolchain.cuda import CudaToolkit


def make_directory(
    context: BuildContext, directory: Path, source: Path | None, device: Sequence[DeviceModule]
) -> None:
    """Create the directory in which the linker wrapper finds the CUDA tools.

    It also contains linked cubins of `device`, the modules that this invocation compiled, and the PTX to keep
    if one `source` is linked. Raises ToolchainError if a tool is missing.
    """
    ptx = kept_ptx.kept_ptx(context, source, device) if source is not None else ()
    linked = linked_images(context, device)
    cuda = context.cuda
    if cuda is None or cuda.ptxas is None or cuda.nvlink is None or cuda.fatbinary is None:
        msg = "linking device code for CUDA needs ptxas, nvlink and fatbinary"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[cuda]', or give --cuda-path=")
    context.executor.step(
        CudaDirectory(
            ptxas=cuda.ptxas,
            nvlink=cuda.nvlink,
            fatbinary=cuda.fatbinary,
            cuda_version=cuda.version,
            for_clang=context.consumer,
            time=context.source_time,
            ptxas_arguments=context.options.device_flags.ptxas_arguments,
            ptx=ptx,
            cubins=tuple(CodeFile(one.target.arch, one.path.absolute()) for one in linked),
            output=directory,
        )
    )


def fat_binary_command(
    cuda: CudaToolkit,
    cubins: Sequence[tuple[Target, Path]],
    ptx: Sequence[tuple[Target, Path]],
    output: Path,
) -> Command:
    """Return the command that packs cubins and PTX into a fat binary."""
    images = [cubin_argument(cuda.version, target.arch, path) for target, path in cubins]
    images += [ptx_argument(cuda.version, target.arch, path) for target, path in ptx]
    return Command((str(cuda.fatbinary), "-64", f"--create={output}", *images))


def bundle_findings(path: Path, manifest: MobManifest, tools: LinkTools) -> Iterator[Finding]:
    """Yield architectures that LLVM or CUDA do not support, and libdevice if it is called but missing."""
    llvm, cuda = tools.llvm, tools.cuda
    if llvm is None:
        return
    for arch in manifest.archs(Kind.CUDA):
        try:
            ptx_isa_for(arch, llvm.version.major, cuda)
        except MlirOffloadError as error:
            yield Finding(error.message, str(path), error.hint, type(error))
    if manifest.needs_libdevice and (cuda is None or cuda.libdevice is None):
        where = f"CUDA in {cuda.root} does not have it" if cuda else "there is no CUDA here"
        message = f"kernels call libdevice, and {where}"
        hint = "install the nvvm component of CUDA, or bundle again with --with-device-libs"
        yield Finding(message, str(path), hint, ToolchainError)
