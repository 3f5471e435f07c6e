"""The parts of the runtime for sparse matrices, over cuSPARSE and cuSPARSELt; linked if they are called."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.kind_format import format_of
from mlir_offload.toolchain.errors import ToolchainError, VerificationError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIBRARY_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib")
# Directories of distribution packages, besides the toolkit.
_SYSTEM_FOLDERS = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"))


class SparsePart(Struct, frozen=True):
    """A part of the runtime: its C source, the library that it calls, and the package of that library."""

    source: str
    library: str
    functions: re.Pattern[str]
    package: str


_PARTS = (
    SparsePart(
        "sparse.c",
        "libcusparse.so",
        pattern(
            r"mgpu(?:(?:Create|Destroy)(?:DnVec|DnMat|Coo|CooAoS|Csr|Csc|Bsr|SpMat|SparseEnv)|Sp[MG]\w+|SDDMM\w*|SetCsrPointers)"
        ),
        "cuSPARSE (libcusparse-dev, or 'pip install nvidia-cusparse')",
    ),
    SparsePart(
        "sparse_lt.c",
        "libcusparseLt.so",
        pattern(r"mgpu(?:(?:Create|Destroy)SparseLtEnv|(?:Create|Destroy)?Cu[sS]parseLt\w+)"),
        "cuSPARSELt (libcusparselt-dev, or 'pip install nvidia-cusparselt-cu13')",
    ),
)


def sparse_parts(symbols: Iterable[str], kinds: Collection[Kind]) -> tuple[SparsePart, ...]:
    """Return the parts of the runtime that define the called functions.

    Raises VerificationError if no kind of the program supports sparse matrices.
    """
    names = sorted(symbols)
    parts = tuple(part for part in _PARTS if any(map(part.functions.fullmatch, names)))
    if parts and not any(format_of(kind).has_sparse for kind in kinds):
        called = next(filter(parts[0].functions.fullmatch, names))
        msg = f"the program calls {called}: sparse matrices are lowered to cuSPARSE, for NVIDIA GPUs only"
        hint = "compile for an NVIDIA GPU as well, with --offload-arch=sm_NN"
        raise VerificationError(msg, hint=hint)
    return parts


def sparse_compile_command(clang: Path, part: SparsePart, output: Path) -> Command:
    """Return the command that compiles a part of the runtime."""
    source = Path(__file__).parent / "runtime" / part.source
    flags = ("-std=c11", "-O0", "-fPIC", "-w", "-c", str(source))
    return Command((str(clang), *flags, "-o", str(output)))


def sparse_embed_command(clang: Path, part: SparsePart, output: Path) -> Command:
    """Return the command that compiles a part to bitcode, to be embedded with the rest of the runtime."""
    directory = Path(__file__).parent / "runtime"
    flags = ("-std=c11", "-O2", "-Xclang", "-disable-llvm-passes", "-fPIC", "-w")
    form = ("-DMLIR_OFFLOAD_EMBEDDED", "-emit-llvm", "-c", part.source)
    return Command((str(clang), *flags, *form, "-o", str(output.absolute())), cwd=directory)


def sparse_link_arguments(part: SparsePart, cuda_root: Path) -> tuple[str, ...]:
    """Return the libraries that follow the object of a part. Raises ToolchainError if they are missing."""
    own = tuple(cuda_root / folder for folder in _LIBRARY_FOLDERS)
    for folder in (*own, *_SYSTEM_FOLDERS):
        # Wheels lack the unversioned file name.
        for library in (folder / part.library, *sorted(folder.glob(f"{part.library}.*"))):
            if library.is_file():
                return str(library), f"-Wl,-rpath,{folder}"
    msg = f"the program uses sparse matrices, and {cuda_root} has no {part.library}"
    hint = f"install {part.package} into this toolkit, or name another with --cuda-path="
    raise ToolchainError(msg, hint=hint)
