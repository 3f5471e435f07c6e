"""The runtime's part for sparse matrices, over cuSPARSE: linked where a program calls it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import ToolchainError, VerificationError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

SPARSE_SOURCE = Path(__file__).parent / "runtime" / "sparse.c"
_LIBRARY = "libcusparse.so"
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib")
_STRUCTURED = re.compile(r"mgpuCu[sS]parseLt|mgpu(?:Create|Destroy)CuSparseLt")
_SPARSE = re.compile(
    r"mgpu(?:(?:Create|Destroy)(?:DnVec|DnMat|Coo|CooAoS|Csr|Csc|Bsr|SpMat)|Sp[MG]\w+|SDDMM\w*|SetCsrPointers)"
)


def is_sparse(symbols: Iterable[str], kinds: Collection[Kind]) -> bool:
    """Say whether the symbols that objects leave to the runtime are those for sparse matrices.

    Raises VerificationError for what no runtime of the program's kinds has.
    """
    names = sorted(symbols)
    structured = next(filter(_STRUCTURED.match, names), None)
    if structured:
        msg = f"the program calls {structured}: matrices of the form '2 of 4' need cuSPARSELt"
        hint = "define the mgpu* functions for cuSPARSELt in a library of your own; they are not part of the runtime"
        raise VerificationError(msg, hint=hint)
    called = next(filter(_SPARSE.fullmatch, names), None)
    if called and Kind.CUDA not in kinds:
        msg = f"the program calls {called}: sparse matrices are lowered to cuSPARSE, for NVIDIA GPUs only"
        hint = "compile for an NVIDIA GPU as well, with --offload-arch=sm_NN"
        raise VerificationError(msg, hint=hint)
    return called is not None


def sparse_compile_command(clang: Path, output: Path) -> Command:
    """Return the command that compiles this part of the runtime."""
    flags = ("-std=c11", "-O0", "-fPIC", "-w", "-c", str(SPARSE_SOURCE))
    return Command((str(clang), *flags, "-o", str(output)))


def sparse_link_arguments(cuda_root: Path) -> tuple[str, ...]:
    """Return the libraries to name after its object. Raises ToolchainError without cuSPARSE."""
    for folder in _LIBRARY_FOLDERS:
        library = cuda_root / folder / _LIBRARY
        if library.is_file():
            return str(library), f"-Wl,-rpath,{library.parent}"
    msg = f"the program uses sparse matrices, and {cuda_root} has no {_LIBRARY}"
    hint = "install cuSPARSE (libcusparse-dev) into this toolkit, or name another with --cuda-path="
    raise ToolchainError(msg, hint=hint)
