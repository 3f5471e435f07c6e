"""The user's bitcode libraries of device code: check them, and link them in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.compile import downgrade
from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.offload.device.library import check_library
from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.target import Target
from mlir_offload.translate.device_ir import calls_others
from mlir_offload.translate.kind.cuda import library_link_command

if TYPE_CHECKING:
    from mlir_offload.toolchain.llvm import LlvmToolchain


def check_libraries(
    context: BuildContext, source: Path, target: Target, lowered: Path, chosen: Sequence[Path]
) -> tuple[Path, ...]:
    """Return the libraries that a lowered module depends on: all, or none if it calls no external function.

    Raises InputOutputError for a missing library, CompatibilityError for an incompatible one.
    """
    for path in chosen:
        if not path.is_file():
            msg = f"{path}: no such file"
            raise InputOutputError(msg, hint="check the name of the device library")
    if not calls_others(lowered.read_text(encoding="utf-8")):
        return ()

    for path in chosen:
        check_library(path, target, context.consumer)
        context.dependencies.add(source, path, target=str(target))
    return tuple(chosen)


def link_in(
    context: BuildContext, llvm: LlvmToolchain, source: Path, libraries: Sequence[Path]
) -> Path:
    """Return the bitcode of `source`, linked by llvm-link with the library functions that it calls."""
    linked = source.with_suffix(".linked.bc")
    command = library_link_command(llvm, source, linked, libraries)
    context.executor.tool(command, linked, diagnose=partial(downgrade.not_taken, context))
    return linked
