"""Objects that any linker takes: device code linked, kernels registered, the runtime inside.

`clang -r --offload-link` links the device code of one object. The runtime is linked in and made
local, so that objects for other devices, with runtimes of their own, do not meet in one program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.cuda_image import assembly_file, codegen_for, prepared_file
from mlir_offload.driver.compile.device import DeviceModule
from mlir_offload.driver.compile.image import ImageFile
from mlir_offload.driver.link.device_link import device_link, make_cuda_directory
from mlir_offload.driver.link.relocatable import RelocatableLink, link_relocatable
from mlir_offload.driver.link.runtime import compile_runtime, host_runtime, memref_copy_objects
from mlir_offload.driver.option.command_line import DeviceCode, Mode
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.objects import read_objects
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind, Target
from mlir_offload.translate.target_attribute import TargetAttribute, attribute_for


def check_final(context: BuildContext) -> None:
    """Raise CompatibilityError where the release cannot link code for a device object by object."""
    refused = load_abi(context.consumer).relocatable_link_without
    target = next((target for target in context.targets if target.kind in refused), None)
    if target is not None:
        msg = (
            f"-fno-gpu-rdc: LLVM {context.consumer} cannot link code for {target} object by object"
        )
        hint = f"link with mlir-offload, or leave {target} out of --offload-arch"
        raise CompatibilityError(msg, hint=hint)


def make_final(
    context: BuildContext, source: Path, made: Path, device: Sequence[DeviceModule], output: Path
) -> None:
    """Make the object `made` of a source, with these device modules, a final one."""
    check_final(context)
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
        contained = (runtime.object, *_memref_copy(context, made))
    link_relocatable(context, RelocatableLink((made, *contained), linked, link))
    executor.step("detach", (linked, "-o", whole if contained else output))
    if contained:
        hide = made.with_name("runtime.local")
        weaken = made.with_name("runtime.weak")
        executor.step("runtime-symbols", (runtime.object, "--weak", weaken, "-o", hide))
        objcopy = (str(context.llvm.tool("llvm-objcopy")), f"--localize-symbols={hide}")
        arguments = (f"--weaken-symbols={weaken}", str(whole), str(output))
        executor.tool(Command((*objcopy, *arguments)), output)


def add_memref_copy(context: BuildContext, made: Path, output: Path) -> None:
    """Make the object `made`, which has no device code, a final one: with the copy that it may call."""
    contained = _memref_copy(context, made)
    if not contained:
        context.executor.place(made, output)
        return
    argv = (str(context.llvm.tool("clang")), "-r", str(made), *map(str, contained))
    context.executor.tool(Command((*argv, "-o", str(output))), output)


def _memref_copy(context: BuildContext, made: Path) -> tuple[Path, ...]:
    contents = () if context.options.dry_run else read_objects(made)
    return memref_copy_objects(context, contents, made.parent)


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
    if not others and (first.ptx is not None or context.options.device_code is DeviceCode.OBJECT):
        return assembly_file(first)
    if any(image.ptx is not None for image in images):
        msg = f"PTX for {target} cannot be kept: a gpu.binary brings its own, and a file keeps one"
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


def ptx_options(images: Sequence[tuple[Target, Path]]) -> tuple[str, ...]:
    """Return how the step that makes a CUDA directory is told of PTX to keep."""
    return tuple(f"--ptx={target.arch}={path.absolute()}" for target, path in images)
