"""Objects that any linker takes: device code linked, kernels registered, the runtime inside.

`clang -r --offload-link` links the device code of one object. The runtime is linked in and made
local, so that objects for other devices, with runtimes of their own, do not meet in one program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.cuda_image import assembly_file, codegen_for, prepared_file
from mlir_offload.driver.device import DeviceModule
from mlir_offload.driver.device_image import ImageFile
from mlir_offload.driver.device_link import device_link, make_cuda_directory
from mlir_offload.driver.options import DeviceCode, Mode
from mlir_offload.driver.relocatable_link import RelocatableLink, link_relocatable
from mlir_offload.driver.runtime import compile_runtime, host_runtime
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate.target_attribute import TargetAttribute, attribute_for


def make_final(
    context: BuildContext, source: Path, made: Path, device: Sequence[DeviceModule], output: Path
) -> None:
    """Make the object `made` of a source, with these device modules, a final one."""
    executor, runtime = context.executor, host_runtime(context)
    linked, whole = (made.with_suffix(end) for end in (".linked.o", ".whole.o"))
    directory = made.with_name("cuda")
    if Kind.CUDA in runtime.kinds:
        make_cuda_directory(context, directory, ptx_options(_ptx_images(context, source, device)))
    link = device_link(context, runtime, directory)
    contained: tuple[Path, ...] = ()
    if context.options.mode is Mode.OBJECT:
        if runtime.object in context.pending:
            context.wait_for(runtime.object)
        else:
            executor.once(runtime.object, partial(compile_runtime, context, runtime))
        contained = (runtime.object,)
    link_relocatable(context, RelocatableLink((made, *contained), linked, link))
    executor.step("detach", (linked, "-o", whole if contained else output))
    if contained:
        hide = made.with_name("runtime.local")
        weaken = made.with_name("runtime.weak")
        executor.step("runtime-symbols", (runtime.object, "--weak", weaken, "-o", hide))
        objcopy = (str(context.llvm.tool("llvm-objcopy")), f"--localize-symbols={hide}")
        arguments = (f"--weaken-symbols={weaken}", str(whole), str(output))
        executor.tool(Command((*objcopy, *arguments)), output)


def _ptx_images(
    context: BuildContext, source: Path, device: Sequence[DeviceModule]
) -> tuple[tuple[Target, Path], ...]:
    """Return the PTX that is kept, one file for each architecture, as the driver takes them."""
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
                kept.append((target, _one_ptx(context, source, own, target)))
    return tuple(kept)


def _one_ptx(
    context: BuildContext,
    source: Path,
    images: Mapping[ImageFile, TargetAttribute | None],
    target: Target,
) -> Path:
    """Return the PTX of all modules; a fat binary has one for each architecture.

    The libraries that are attached to any of them are linked into all.
    """
    from mlir_offload.translate.device import nvptx_assembly_command

    first, *others = images
    if not others and context.options.device_code is DeviceCode.OBJECT:
        return assembly_file(first)
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


def ptx_options(images: Sequence[tuple[Target, Path]]) -> tuple[str, ...]:
    """Return how the step that makes a CUDA directory is told of PTX to keep."""
    return tuple(f"--ptx={target.arch}={path.absolute()}" for target, path in images)
