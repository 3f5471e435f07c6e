"""The library of a sanitizer, which a program and its images for the CPU share."""

from __future__ import annotations

import os
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command, run_checked
from mlir_offload.translate.sanitizer import Sanitizer

_CHECKS = "ubsan_standalone"


def sanitizer_arguments(context: BuildContext, sanitizer: Sanitizer) -> tuple[str, ...]:
    """Return what brings the library to a link, before all others: it takes the place of malloc.

    Raises ToolchainError where there is none.
    """
    library = sanitizer_library(context, sanitizer)
    return (str(library), f"-Wl,-rpath,{library.parent}")


def check_arguments(context: BuildContext) -> tuple[str, ...]:
    """Return what brings the library of `-fsanitize=undefined` to a link.

    Clang would link the static one, also into the images for the CPU, which are shared libraries.
    Raises ToolchainError if there is none.
    """
    options = context.options
    checks = [word for word in options.compiler_arguments if word.startswith("-fsanitize=")]
    # The library of a sanitizer contains it.
    if not checks or options.sanitizer is not None:
        return ()
    library = _find_library(context, checks[-1], _CHECKS)
    return (str(library), f"-Wl,-rpath,{library.parent}")


def sanitizer_library(context: BuildContext, sanitizer: Sanitizer) -> Path:
    """Return the shared library of clang; GCC's AddressSanitizer serves clang's calls too."""
    # GCC 12's ThreadSanitizer has no __tsan_memcpy, and libomp does not start under it.
    others = ("libasan.so",) if sanitizer is Sanitizer.ADDRESS else ()
    return _find_library(context, sanitizer.flag, sanitizer.library, others)


def _find_library(
    context: BuildContext, flag: str, library: str, others: tuple[str, ...] = ()
) -> Path:
    for name in (f"libclang_rt.{library}-{os.uname().machine}.so", *others):
        command = Command((str(context.llvm.tool("clang")), f"-print-file-name={name}"))
        found = Path(run_checked(context.executor.runner, command).stdout.strip())
        # Clang prints the name as it is where it finds no such file.
        if found.is_absolute() and found.exists():
            return found.resolve()
    msg = f"the library of {flag} was not found"
    raise ToolchainError(msg, hint=f"apt install libclang-rt-{context.llvm.version.major}-dev")
