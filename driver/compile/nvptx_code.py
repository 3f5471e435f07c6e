"""Prepare LLVM IR for the NVPTX backend: mark kernels, link libraries, choose code generation options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import (
    ImageFile,
    kernels_of,
    run_on_kernels,
    user_libraries,
    with_libraries,
)
from mlir_offload.driver.step.step import NvptxIr
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.ptx import ptx_isa_for
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.kind.cuda import DeviceCodegen, needs_libdevice
from mlir_offload.translate.kind_lowering import TargetAttribute, attribute_for

if TYPE_CHECKING:
    from mlir_offload.driver.step.split_file import ModuleFile

CUDA_HINT = "pip install 'mlir-offload[cuda]', or name a toolkit with --cuda-path="
"""How to get a CUDA toolkit."""


def prepared_file(image: ImageFile) -> Path:
    """Return the path of the LLVM IR of a CUDA image."""
    return image.path.with_suffix(".ll")


class NvptxCode(Struct, frozen=True):
    """A device module to be compiled to NVPTX code by `llvm`, which reads `text`."""

    context: BuildContext
    source: Path
    module: ModuleFile
    text: Path
    image: ImageFile
    llvm: LlvmToolchain
    is_assembled: bool = True

    def prepare(self) -> tuple[Path, DeviceCodegen, Path | None]:
        """Return the input of clang, the code generation options, and libdevice if clang links it in."""
        attached = attribute_for(self.module.module.targets, self.image.target)
        codegen, libdevice = codegen_for(
            self.context,
            self.source,
            self.image.target,
            self.text,
            attached,
            self.llvm,
            is_assembled=self.is_assembled,
        )
        wanted = (*codegen.libraries, *((libdevice,) if libdevice else ()))
        ready, left = with_libraries(self.context, self.llvm, self._marked(attached), wanted)
        if left:
            return ready, codegen, libdevice
        return ready, replace(codegen, libraries=()), None

    def _marked(self, attached: TargetAttribute | None) -> Path:
        """Return the module with triple and data layout, its kernels marked."""
        options, ready = self.context.options, prepared_file(self.image)
        flushes = options.device_flags.ftz or (attached is not None and "ftz" in attached.flags)
        step = NvptxIr(
            source=self.text,
            kernels=kernels_of(self.module),
            rdc=bool(options.gpu_rdc),
            ftz=flushes,
            llvm=self.llvm.version.major,
            output=ready,
        )
        run_on_kernels(self.context, self.module, step)
        return ready


def codegen_for(  # noqa: PLR0913 (what decides how code is generated)
    context: BuildContext,
    source: Path,
    target: Target,
    module: Path,
    attached: TargetAttribute | None = None,
    llvm: LlvmToolchain | None = None,
    *,
    is_assembled: bool = True,
) -> tuple[DeviceCodegen, Path | None]:
    """Return the code generation options for an NVIDIA GPU, and libdevice if the code calls it.

    The target attribute of the module overrides the command line. Raises ToolchainError if libdevice is missing.
    """
    options = context.options
    own = attached or TargetAttribute(target.kind)
    libraries = user_libraries(context, source, target, module, own.link)
    codegen = DeviceCodegen(
        target.arch,
        ptx_isa_for(
            target.arch,
            (llvm or context.llvm).version.major,
            context.cuda,
            is_assembled=is_assembled,
        ),
        options.opt_level if own.opt_level < 0 else own.opt_level,
        debug=options.debug,
        libraries=libraries,
        arguments=(*own.feature_arguments, *options.device_flags.device_opt_for(target.arch)),
        ptxas_arguments=options.device_flags.ptxas_arguments,
    )
    if not options.links_device_libraries:
        return codegen, None
    if not needs_libdevice(module.read_text(encoding="utf-8")) and not _call_libdevice(libraries):
        return codegen, None
    library = context.libdevice or _libdevice(context.cuda, source)
    context.dependencies.add(source, library, is_system=True)
    return codegen, library


def _call_libdevice(libraries: Sequence[Path]) -> bool:
    return any(b"__nv_" in path.read_bytes() for path in libraries)


def _libdevice(cuda: CudaToolkit | None, source: Path) -> Path:
    if cuda is None or cuda.libdevice is None:
        msg = "a kernel calls math functions of libdevice, which is part of the CUDA toolkit"
        hint = f"{CUDA_HINT}; or leave its functions to the link, with -nogpulib"
        raise ToolchainError(msg, hint=hint, location=str(source))
    return cuda.libdevice
