"""The host runtime of a link, and its compilation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import runtime_libraries
from mlir_offload.driver.compile.runtime_cache import compile_runtime_source
from mlir_offload.driver.option.command_line import Mode
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.offload.runtime import (
    MEMREF_COPY,
    memref_copy_compile_command,
    runtime_compile_command,
    runtime_source,
)
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind, all_kinds


class HostRuntime(Struct, frozen=True):
    """The object file of the runtime, the offload kinds in the program, and the architectures of each kind."""

    object: Path
    kinds: frozenset[Kind]
    all_archs: tuple[tuple[Kind, tuple[str, ...]], ...]

    def archs(self, kind: Kind) -> tuple[str, ...]:
        """Return the architectures of a kind in the program."""
        return dict(self.all_archs).get(kind, ())


def host_runtime(context: BuildContext) -> HostRuntime:
    """Return the runtime for the kinds of the targets and inputs; it is compiled only if it is needed."""
    kinds = {target.kind for target in context.targets}
    kinds |= {kind for item in context.given for kind in item.device_kinds}
    used: set[tuple[str, str]] = {(target.kind, target.arch) for target in context.targets}
    used |= {(image.kind, image.arch) for item in context.given for image in item.images}
    archs = tuple(
        (kind, tuple(sorted(arch for other, arch in used if other == kind))) for kind in all_kinds()
    )
    return HostRuntime(context.workspace / "runtime.o", frozenset(kinds), archs)


def memref_copy_objects(
    context: BuildContext, contents: Sequence[ObjectContents], directory: Path
) -> tuple[Path, ...]:
    """Compile the strided memref copy of the runtime if one of these objects calls it."""
    if not any(MEMREF_COPY in item.runtime_symbols for item in contents):
        return ()
    output = directory / "memref_copy.o"
    command = memref_copy_compile_command(
        context.llvm.tool("clang"), output, _sanitizer_flags(context)
    )
    context.executor.tool(command, output)
    return (output,)


def _sanitizer_flags(context: BuildContext) -> tuple[str, ...]:
    return (context.options.sanitizer.flag,) if context.options.sanitizer else ()


def compile_runtime(context: BuildContext, runtime: HostRuntime) -> None:
    """Compile the runtime with the linking clang, or take it from the cache."""
    # Only the link waits for the runtime, so the other steps have precedence.
    command = replace(_compile_command(context, runtime), in_background=True)
    compile_runtime_source(context.executor, command, runtime_source(), runtime.object)


def _compile_command(context: BuildContext, runtime: HostRuntime) -> Command:
    """Return the command of the linking clang. C source has no version skew."""
    return runtime_compile_command(
        context.llvm.tool("clang"),
        runtime.object,
        kinds=runtime.kinds,
        archs=dict(runtime.all_archs),
        # A non-RDC object contains everything but the libraries of the GPU vendor.
        fallback=context.libomptarget is None or context.options.mode is not Mode.LINK,
        libraries=runtime_libraries(context, runtime.kinds),
        extra=_sanitizer_flags(context),
    )
