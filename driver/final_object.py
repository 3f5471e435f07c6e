"""Objects that any linker takes: device code linked, kernels registered, the runtime inside.

`clang -r --offload-link` links the device code of one object. The runtime is linked in and made
local, so that objects for other devices, with runtimes of their own, do not meet in one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.cuda_image import assembly_file, codegen_for, prepared_file
from mlir_offload.driver.device import DeviceModule
from mlir_offload.driver.device_image import ImageFile
from mlir_offload.driver.device_link import device_link, make_cuda_directory
from mlir_offload.driver.options import DeviceCode, Mode
from mlir_offload.driver.runtime import host_runtime
from mlir_offload.offload.abi import first_relocatable_link, load_abi
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind, Target


def check_final(context: BuildContext) -> None:
    """Raise CompatibilityError where the release cannot link device code object by object."""
    if not load_abi(context.consumer).has_relocatable_link:
        msg = f"-fno-gpu-rdc: LLVM {context.consumer} leaves device code in objects unlinked"
        hint = f"use LLVM {first_relocatable_link()} or newer, or link with mlir-offload"
        raise CompatibilityError(msg, hint=hint)
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
        context.wait_for(runtime.object)
        contained = (runtime.object,)
    linker = ("-fuse-ld=lld",) if context.llvm.has("ld.lld") else ()
    workspace = context.workspace.absolute()
    # The wrapper names a section after its output: a name that every workspace has.
    argv = (
        *(str(context.llvm.tool("clang")), "-r", "--offload-link", *linker),
        *(str(path.absolute()) for path in (made, *contained)),
        *(*link.arguments, "-o", str(linked.absolute().relative_to(workspace))),
    )
    executor.tool(Command(argv, environment=link.environment, cwd=workspace), linked)
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
    if options.device_code is not DeviceCode.OBJECT:
        return ()
    kept = []
    for target in context.targets:
        if options.device_flags.keeps_ptx(target, context.targets):
            images = [image for module in device for image in module.images]
            own = [image for image in images if image.target == target]
            if own:
                kept.append((target, _one_ptx(context, source, own, target)))
    return tuple(kept)


def _one_ptx(
    context: BuildContext, source: Path, images: Sequence[ImageFile], target: Target
) -> Path:
    """Return the PTX of all modules; a fat binary has one for each architecture."""
    from mlir_offload.translate.device import nvptx_assembly_command

    if len(images) == 1:
        return assembly_file(images[0])
    executor, directory = context.executor, images[0].path.parent
    parts = [str(prepared_file(image)) for image in images]
    merged, assembly = (directory / f"all.{target.arch}.{end}" for end in ("ll", "s"))
    link = (str(context.llvm.tool("llvm-link")), "-S", *parts, "-o", str(merged))
    executor.tool(Command(link), merged)
    codegen, library = codegen_for(context, source, target, merged)
    executor.tool(
        nvptx_assembly_command(context.llvm, merged, assembly, codegen, library), assembly
    )
    return assembly


def ptx_options(images: Sequence[tuple[Target, Path]]) -> tuple[str, ...]:
    """Return how the step that makes a CUDA directory is told of PTX to keep."""
    return tuple(f"--ptx={target.arch}={path.absolute()}" for target, path in images)
