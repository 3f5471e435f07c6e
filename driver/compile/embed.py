"""Embed the host runtime into a host module (`--embed-runtime`), so that plain clang can link it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.downgrade import not_taken
from mlir_offload.driver.compile.kind_build import runtime_libraries
from mlir_offload.driver.option.command_line import CompileOptions
from mlir_offload.driver.tools.releases import Releases
from mlir_offload.offload.llvm_ir import assemble_command
from mlir_offload.offload.runtime import embed_runtime_command
from mlir_offload.offload.sparse_runtime import sparse_embed_command, sparse_parts
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.toolchain.target import Kind

_CALLED = ir_pattern("@`name:(`mgpu`word``)`(")


def check_embedding(options: CompileOptions, releases: Releases) -> None:
    """Raise CompatibilityError if the runtime cannot be compiled to LLVM IR of the linking LLVM."""
    if options.emit_llvm and not releases.is_consumer_here:
        msg = f"--embed-runtime: LLVM IR for LLVM {releases.consumer} requires its clang"
        hint = f"apt install clang-{releases.consumer}, or make an object with -c"
        raise CompatibilityError(msg, hint=hint)


def embed_runtime(context: BuildContext, embedded: Path, output: Path) -> None:
    """Write the host module, its offload data and the runtime as one textual LLVM IR module."""
    executor, clang = context.executor, context.llvm.tool("clang")
    kinds = frozenset(target.kind for target in context.targets)
    module = embedded.with_suffix(".bc")
    diagnose = partial(not_taken, context)
    executor.tool(assemble_command(context.llvm, embedded, module), module, diagnose=diagnose)
    modules = [module]
    text = "" if context.options.dry_run else embedded.read_text(errors="surrogateescape")
    for part in sparse_parts(frozenset(_CALLED.findall(text)), kinds):
        made = embedded.with_name(f"{Path(part.source).stem}.bc")
        executor.tool(sparse_embed_command(clang, part, made), made)
        modules.append(made)
    command = embed_runtime_command(
        clang,
        modules,
        output,
        kinds=kinds,
        archs={kind: _archs(context, kind) for kind in kinds},
        libraries=runtime_libraries(context, kinds),
        extra=(context.options.sanitizer.flag,) if context.options.sanitizer else (),
    )
    executor.tool(command, output)


def _archs(context: BuildContext, kind: Kind) -> tuple[str, ...]:
    return tuple(target.arch for target in context.targets_of(kind))
