"""Non-RDC objects, which any linker accepts: device-linked, self-registering, with the runtime inside.

`clang -r --offload-link` links the device code of one object. The runtime is linked into the object and made
local, so that objects with runtimes for different devices can be linked into one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import DeviceModule, builds_of
from mlir_offload.driver.link.device_link import device_link
from mlir_offload.driver.link.relocatable import RelocatableLink, link_relocatable
from mlir_offload.driver.link.runtime import compile_runtime, host_runtime, memref_copy_objects
from mlir_offload.driver.option.command_line import Mode
from mlir_offload.driver.step.object_file import Detach, RuntimeSymbols
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.link.dummy_image import targets_of
from mlir_offload.offload.link.objects import ObjectContents, read_objects
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.process import Command


def check_non_rdc(
    context: BuildContext,
    given: Sequence[ObjectContents] = (),
    option: str = "-fno-gpu-rdc",
) -> None:
    """Raise CompatibilityError if the linking LLVM cannot link the device code of one object for a target."""
    refused = load_abi(context.consumer).relocatable_link_without
    targets = [*context.targets, *targets_of(given)]
    target = next((target for target in targets if target.kind in refused), None)
    if target is not None:
        msg = f"{option}: LLVM {context.consumer} cannot link code for {target} object by object"
        hint = f"link with mlir-offload, or leave {target} out of --offload-arch"
        raise CompatibilityError(msg, hint=hint)


def make_non_rdc_object(
    context: BuildContext, source: Path, made: Path, device: Sequence[DeviceModule], output: Path
) -> None:
    """Make the non-RDC object `output` from the object `made` of a source and its device modules."""
    check_non_rdc(context)
    executor, runtime = context.executor, host_runtime(context)
    linked, whole = (made.with_suffix(end) for end in (".linked.o", ".whole.o"))
    directory = made.with_name("cuda").absolute()
    for build in builds_of(runtime.kinds):
        build.prepare_link(context, directory, source, device)
    link = device_link(context, runtime, directory)
    contained: tuple[Path, ...] = ()
    if context.options.mode is Mode.OBJECT:
        if runtime.object in context.pending:
            context.wait_for(runtime.object)
        else:
            executor.once(runtime.object, partial(compile_runtime, context, runtime))
        contained = (runtime.object, *_memref_copy(context, made))
    link_relocatable(context, RelocatableLink((made, *contained), linked, link))
    executor.step(Detach(source=linked, output=whole if contained else output))
    if contained:
        hide = made.with_name("runtime.local")
        weaken = made.with_name("runtime.weak")
        executor.step(RuntimeSymbols(source=runtime.object, weak=weaken, output=hide))
        objcopy = (str(context.llvm.tool("llvm-objcopy")), f"--localize-symbols={hide}")
        arguments = (f"--weaken-symbols={weaken}", str(whole), str(output))
        executor.tool(Command((*objcopy, *arguments)), output)


def add_memref_copy(context: BuildContext, made: Path, output: Path) -> None:
    """Make the non-RDC object of `made`, which has no device code: add the memref copy if it is called."""
    contained = _memref_copy(context, made)
    if not contained:
        context.executor.place(made, output)
        return
    argv = (str(context.llvm.tool("clang")), "-r", str(made), *map(str, contained))
    context.executor.tool(Command((*argv, "-o", str(output))), output)


def _memref_copy(context: BuildContext, made: Path) -> tuple[Path, ...]:
    contents = () if context.options.dry_run else read_objects(made)
    return memref_copy_objects(context, contents, made.parent)
