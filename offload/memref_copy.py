"""The runtime's part for memref.copy of strided memrefs: linked where a program calls it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlir_offload.toolchain.process import Command

MEMREF_COPY = "memrefCopy"
"""The function that host code calls; upstream has it in libmlir_c_runner_utils."""

_SOURCE = Path(__file__).parent / "runtime" / "memref_copy.c"


def memref_copy_compile_command(clang: Path, output: Path, extra: Sequence[str] = ()) -> Command:
    """Return the command that compiles this part of the runtime, which needs no other."""
    flags = ("-std=c11", "-O2", "-fPIC", "-w", *extra, "-c", str(_SOURCE))
    return Command((str(clang), *flags, "-o", str(output)))
