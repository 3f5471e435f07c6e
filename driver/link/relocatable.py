"""Link the device code of objects into an object that any linker accepts.

From LLVM 19 on, `clang -r --offload-link` does this. Older wrappers ignore device code if given -r. Therefore
-r is left out, and a script in place of the linker links an object instead of a program. Afterwards the
symbols that delimit the entries in the registration code are made local to the object, as newer wrappers do;
otherwise each object of a program would register the kernels of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.link.device_link import DeviceLink
from mlir_offload.driver.step.object_file import (
    RegistrationNames,
    RelocatableLinker,
    Replacement,
)
from mlir_offload.offload.abi import load_abi
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.process import Command, Completed, tool_failed


class RelocatableLink(Struct, frozen=True):
    """Objects whose device code is linked together, and the resulting object."""

    inputs: tuple[Path, ...]
    output: Path
    device_link: DeviceLink
    options: tuple[str, ...] = ()


def link_relocatable(
    context: BuildContext,
    link: RelocatableLink,
    diagnose: Callable[[Completed], MlirOffloadError] = tool_failed,
) -> None:
    """Link the device code. Raises the error of `diagnose` if a tool fails or writes no output."""
    executor, output = context.executor, link.output
    if load_abi(context.consumer).has_relocatable_link:
        lld = ("-fuse-ld=lld",) if context.llvm.has("ld.lld") else ()
        executor.tool(_command(context, link, ("-r", *lld), output), output, diagnose=diagnose)
        return
    program, whole = output.with_suffix(".ld"), output.with_suffix(".whole.o")
    objcopy = str(context.llvm.tool("llvm-objcopy"))
    replaced = []
    for number, source in enumerate(link.inputs):
        bare = output.with_suffix(f".bare{number}.o")
        argv = (objcopy, "--remove-section=.llvm.offloading", str(source), str(bare))
        executor.tool(Command(argv), bare)
        replaced.append(Replacement(source.absolute(), bare.absolute()))
    linker = str(context.llvm.tool("ld.lld")) if context.llvm.has("ld.lld") else "ld"
    executor.step(RelocatableLinker(linker=linker, replaced=tuple(replaced), output=program))
    flags = (f"--ld-path={program.absolute()}", "-nostdlib")
    executor.tool(_command(context, link, flags, whole), whole, diagnose=diagnose)
    names = output.with_suffix(".names")
    executor.step(RegistrationNames(source=whole, output=names))
    executor.tool(Command((objcopy, f"@{names}", str(whole), str(output))), output)


def _command(
    context: BuildContext, link: RelocatableLink, flags: Sequence[str], output: Path
) -> Command:
    """Return the clang command, whose output has the same name in every temporary directory.

    The wrapper derives a section name from it, which remains in the program.
    """
    workspace = context.workspace.absolute()
    argv = (
        *(str(context.llvm.tool("clang")), *flags, "--offload-link"),
        *(str(path.absolute()) for path in link.inputs),
        *(*link.device_link.arguments, *link.options),
        *("-o", str(output.absolute().relative_to(workspace))),
    )
    return Command(argv, environment=link.device_link.environment, cwd=workspace)
