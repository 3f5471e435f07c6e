"""The shared library of a sanitizer, which a program and its CPU device images use together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command, run_checked
from mlir_offload.translate import sanitizer as translate_sanitizer

if TYPE_CHECKING:
    from mlir_offload.translate.sanitizer import Sanitizer

_CHECKS = "ubsan_standalone"


def sanitizer_arguments(context: BuildContext, sanitizer: Sanitizer) -> tuple[str, ...]:
    """Return the arguments that link the library, before all others because it replaces malloc.

    Raises ToolchainError if the library is not found.
    """
    library = sanitizer_library(context, sanitizer)
    return (str(library), f"-Wl,-rpath,{library.parent}")


def check_arguments(context: BuildContext) -> tuple[str, ...]:
    """Return the arguments that link the library of `-fsanitize=undefined`.

    By default clang would link the static library, also into CPU device images, which are shared libraries.
    Raises ToolchainError if the library is not found.
    """
    options = context.options
    checks = [word for word in options.compiler_arguments if word.startswith("-fsanitize=")]
    # The library of a sanitizer contains these checks.
    if not checks or options.sanitizer is not None:
        return ()
    library = _find_library(context, checks[-1], _CHECKS)
    return (str(library), f"-Wl,-rpath,{library.parent}")


def sanitizer_library(context: BuildContext, sanitizer: Sanitizer) -> Path:
    """Return the shared library of clang; for AddressSanitizer, GCC's also works."""
    # GCC 12's ThreadSanitizer has no __tsan_memcpy, and libomp does not start under it.
    others = ("libasan.so",) if sanitizer is translate_sanitizer.Sanitizer.ADDRESS else ()
    return _find_library(context, sanitizer.flag, sanitizer.library, others)


def _find_library(
    context: BuildContext, flag: str, library: str, others: tuple[str, ...] = ()
) -> Path:
    for name in (f"libclang_rt.{library}-{os.uname().machine}.so", *others):
        command = Command((str(context.llvm.tool("clang")), f"-print-file-name={name}"))
        found = Path(run_checked(context.executor.runner, command).stdout.strip())
        # If clang does not find the file, it prints the bare name.
        if found.is_absolute() and found.exists():
            return found.resolve()
    msg = f"the library of {flag} was not found"
    raise ToolchainError(msg, hint=f"apt install libclang-rt-{context.llvm.version.major}-dev")
