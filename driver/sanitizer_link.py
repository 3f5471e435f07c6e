"""The library of a sanitizer, which a program and its images for the CPU share."""

from __future__ import annotations

import os
from pathlib import Path

from mlir_offload.driver.context import BuildContext
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command, Runner, run_checked
from mlir_offload.translate.sanitizer import Sanitizer


def sanitizer_arguments(context: BuildContext, sanitizer: Sanitizer) -> tuple[str, ...]:
    """Return what brings the library to a link, before all others: it takes the place of malloc.

    Raises ToolchainError where there is none.
    """
    library = sanitizer_library(context, sanitizer)
    return (str(library), f"-Wl,-rpath,{library.parent}")


def sanitizer_library(context: BuildContext, sanitizer: Sanitizer) -> Path:
    """Return the shared library of clang, else that of GCC, which serves the same calls."""
    found = _find(context.executor.runner, context.llvm.tool("clang"), sanitizer)
    if found is None:
        major = context.llvm.version.major
        msg = f"the library of {sanitizer.flag} was not found"
        raise ToolchainError(msg, hint=f"apt install libclang-rt-{major}-dev")
    return found


def _find(runner: Runner, clang: Path, sanitizer: Sanitizer) -> Path | None:
    short = sanitizer.value[0] + "san"
    for name in (f"libclang_rt.{short}-{os.uname().machine}.so", f"lib{short}.so"):
        command = Command((str(clang), f"-print-file-name={name}"))
        found = Path(run_checked(runner, command).stdout.strip())
        # Clang prints the name as it is where it finds no such file.
        if found.is_absolute() and found.exists():
            return found.resolve()
    return None
