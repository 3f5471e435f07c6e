"""The C runtime that every linked program gets: its sources, how to compile and to link them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

EXIT_STATUS = 70
"""The status with which the runtime ends a program (MLIR_OFFLOAD_EXIT_STATUS)."""

_DIRECTORY = Path(__file__).parent / "runtime"
_ROOT_SOURCE = "runtime.c"
_ALWAYS = ("error.c", "mgpu.c", "offload_entry.c", "sanitizer.c")
_OF_KIND = {
    Kind.CUDA: ("cuda.c", "cuda_error.c", "cuda_stream.c"),
    Kind.OPENMP: ("openmp.c", "pool.c"),
}


RUNTIME_KINDS = frozenset(_OF_KIND)
"""The kinds that the runtime can launch kernels of."""


def runtime_include_directory() -> Path:
    """Return the directory of `mlir_offload.h`, what C and C++ programs may call."""
    return _DIRECTORY


def runtime_sources(kinds: Collection[Kind], *, standin: bool) -> tuple[Path, ...]:
    """Return the C files that make up the runtime for these kinds, the one to compile first.

    The first includes the others. `standin` takes the place of libomptarget.
    """
    names = [_ROOT_SOURCE, *_ALWAYS]
    for kind in Kind:
        names += _OF_KIND[kind] if kind in kinds else ()
    if Kind.OPENMP in kinds:
        names.append("standin.c" if standin else "registration.c")
    return tuple(_DIRECTORY / name for name in names)


def runtime_compile_command(
    clang: Path,
    output: Path,
    *,
    kinds: Collection[Kind],
    archs: Sequence[str],
    standin: bool,
    extra: Sequence[str] = (),
) -> Command:
    """Return the command that compiles the runtime to one relocatable object.

    `archs` are the architectures of the program's GPU images; they stand in error messages.
    Raises ValueError where there is no kind: such a program needs no runtime.
    """
    if not kinds:
        msg = "the runtime needs at least one offload kind"
        raise ValueError(msg)
    definitions = [f"-DMLIR_OFFLOAD_HAVE_{kind.name}" for kind in Kind if kind in kinds]
    if standin and Kind.OPENMP in kinds:
        definitions.append("-DMLIR_OFFLOAD_STANDIN")
    if archs and Kind.CUDA in kinds:
        definitions.append(f"-DMLIR_OFFLOAD_ARCHS={','.join(archs)}")
    source = runtime_sources(kinds, standin=standin)[0]
    # It is compiled at every link and makes nothing but calls: -O2 would take four times as long
    # and save some 40 ns per launch.
    flags = ("-std=c11", "-O0", "-fPIC", "-w", *extra)
    return Command((str(clang), *flags, *definitions, "-c", str(source), "-o", str(output)))


def runtime_link_arguments(
    kinds: Collection[Kind], *, cudart: Path | None, libomptarget: Path | None
) -> tuple[str, ...]:
    """Return the libraries to name after the runtime's object.

    `cudart` is libcudart_static.a or libcudart.so; without `libomptarget` the runtime must have
    been compiled with the stand-in. Raises ToolchainError where a kind lacks its library.
    """
    arguments: list[str] = []
    if Kind.CUDA in kinds:
        arguments += _cudart_arguments(cudart)
    if Kind.OPENMP in kinds and libomptarget is not None:
        arguments += _shared_library(libomptarget)
    return (*arguments, "-ldl", "-lpthread")


def _cudart_arguments(cudart: Path | None) -> list[str]:
    if cudart is None:
        msg = "the CUDA runtime library (libcudart_static.a or libcudart.so) was not found"
        raise ToolchainError(
            msg,
            hint="install the CUDA toolkit, or 'pip install mlir-offload[cuda]', or give --cuda-path=",
        )
    if cudart.suffix == ".a":
        return [str(cudart), "-lrt"]
    return _shared_library(cudart)


def _shared_library(library: Path) -> list[str]:
    return [str(library), f"-Wl,-rpath,{library.parent}"]
