"""PTX kept in addition to the linked device images for NVIDIA GPUs, for later GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import DeviceModule, ImageFile
from mlir_offload.driver.compile.nvptx_code import codegen_for, prepared_file
from mlir_offload.driver.option.compile_options import DeviceCode
from mlir_offload.driver.step.cuda_directory import CodeFile
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.kind.cuda import nvptx_assembly_command
from mlir_offload.translate.kind_lowering import TargetAttribute, attribute_for


def assembly_file(image: ImageFile) -> Path:
    """Return the PTX from which a CUDA image is assembled."""
    return image.ptx or image.path.with_suffix(".s")


def kept_ptx(
    context: BuildContext, source: Path, device: Sequence[DeviceModule]
) -> tuple[CodeFile, ...]:
    """Return the PTX to keep, one file per architecture."""
    options = context.options
    kept = []
    for target in context.targets:
        if options.device_flags.keeps_ptx(target, context.targets):
            own = {
                image: attribute_for(module.module.module.targets, target)
                for module in device
                for image in module.images
                if image.target == target
            }
            if own:
                made = _one_ptx(context, source, own, target)
                kept.append(CodeFile(target.arch, made.absolute()))
    return tuple(kept)


def _one_ptx(
    context: BuildContext,
    source: Path,
    images: Mapping[ImageFile, TargetAttribute | None],
    target: Target,
) -> Path:
    """Return the PTX of all modules in one file, because a fat binary has one per architecture.

    A library that is attached to one module is linked into all of them.
    """
    first, *others = images
    if not others and (first.ptx is not None or context.options.device_code is DeviceCode.OBJECT):
        return assembly_file(first)
    if any(image.ptx is not None for image in images):
        msg = f"PTX for {target} cannot be kept: a gpu.binary contains PTX, and a file can keep only one"
        hint = "compile the gpu.binary in a file of its own, or keep no PTX"
        raise CompatibilityError(msg, hint=hint, location=str(source))
    executor, directory = context.executor, first.path.parent
    attached = [item for item in images.values() if item is not None]
    libraries = tuple(dict.fromkeys(name for item in attached for name in item.link))
    own = replace(attached[0], link=libraries) if attached else None
    parts = [str(prepared_file(image)) for image in images]
    merged, assembly = (directory / f"all.{target.arch}.{end}" for end in ("ll", "s"))
    link = (str(context.llvm.tool("llvm-link")), "-S", *parts, "-o", str(merged))
    executor.tool(Command(link), merged)
    codegen, library = codegen_for(context, source, target, merged, own)
    executor.tool(
        nvptx_assembly_command(context.llvm, merged, assembly, codegen, library), assembly
    )
    return assembly
