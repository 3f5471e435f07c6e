"""The C runtime that every linked program gets: its sources, how to compile and to link them."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.elf import read_elf
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.process import Command
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

EXIT_STATUS = 70
"""The status with which the runtime ends a program (MLIR_OFFLOAD_EXIT_STATUS)."""

_DIRECTORY = Path(__file__).parent / "runtime"
_ROOT_SOURCE = "runtime.c"
_ALWAYS = (
    "catch.c",
    "device_name.c",
    "error.c",
    "launch_memory.c",
    "mgpu.c",
    "offload_entry.c",
    "sanitizer.c",
)
_EMBEDDED = "-DMLIR_OFFLOAD_EMBEDDED"
_OF_KIND = {
    Kind.CUDA: ("cuda.c", "cuda_error.c", "cuda_stream.c", "cuda_tensor_map.c"),
    Kind.HIP: ("hip.c", "hip_error.c", "hip_stream.c"),
    Kind.SYCL: (
        "sycl.c",
        "sycl_assert.c",
        "sycl_device.c",
        "sycl_error.c",
        "sycl_image.c",
        "sycl_launch.c",
        "sycl_load.c",
        "sycl_spirv.c",
        "sycl_stream.c",
    ),
    Kind.OPENMP: ("host_entry.c", "host_tensor_map.c", "openmp.c", "pool.c", "watch.c"),
}


_ARCHS = {Kind.CUDA: "MLIR_OFFLOAD_ARCHS", Kind.HIP: "MLIR_OFFLOAD_HIP_ARCHS"}
_GPU_KINDS = frozenset({Kind.CUDA, Kind.HIP, Kind.SYCL})
_LIBAMDHIP = "libamdhip64.so"
_SONAME = re.compile(r".*\.so(?:\.\d+)?")

RUNTIME_KINDS = frozenset(_OF_KIND)
"""The kinds that the runtime can launch kernels of."""


def runtime_include_directory() -> Path:
    """Return the directory of the C sources and of `mlir_offload.h`, what C and C++ programs may call."""
    return _DIRECTORY


@cache
def runtime_files() -> tuple[tuple[str, bytes], ...]:
    """Return names and content of all C sources and headers of the runtime, in order."""
    paths = sorted((*_DIRECTORY.glob("*.c"), *_DIRECTORY.glob("*.h")))
    return tuple((path.name, path.read_bytes()) for path in paths)


@cache
def runtime_digest() -> str:
    """Return a hash of the runtime's sources: what was compiled against it fits no other for sure."""
    found = hashlib.sha256()
    for name, content in runtime_files():
        found.update(f"{name} {len(content)}\n".encode() + content)
    return found.hexdigest()


def runtime_sources(kinds: Collection[Kind], *, standin: bool) -> tuple[Path, ...]:
    """Return the C files that make up the runtime for these kinds, the one to compile first.

    The first includes the others. `standin` takes the place of libomptarget.
    """
    names = [_ROOT_SOURCE, *_ALWAYS]
    if _GPU_KINDS.intersection(kinds):
        names.append("stream_pool.c")
    if {Kind.CUDA, Kind.OPENMP}.intersection(kinds):
        names.append("tensor_map.c")
    for kind, files in _OF_KIND.items():
        names += files if kind in kinds else ()
    if loads_hip(kinds):
        names.append("hip_load.c")
    if Kind.OPENMP in kinds:
        names.append("standin.c" if standin else "registration.c")
    return tuple(_DIRECTORY / name for name in names)


def loads_hip(kinds: Collection[Kind]) -> bool:
    """Return whether the runtime looks for libamdhip64 when the program runs.

    A program for several kinds of devices has to start where there is no ROCm.
    """
    return Kind.HIP in kinds and len(set(kinds)) > 1


def runtime_compile_command(  # noqa: PLR0913 (what it is compiled for)
    clang: Path,
    output: Path,
    *,
    kinds: Collection[Kind],
    archs: Mapping[Kind, Sequence[str]],
    standin: bool,
    libamdhip: Path | None = None,
    extra: Sequence[str] = (),
) -> Command:
    """Return the command that compiles the runtime to one relocatable object.

    `archs` are the architectures of the program's GPU images; they stand in error messages.
    `libamdhip` is the library of that name to look for where the runtime loads one.
    Raises ValueError where there is no kind: such a program needs no runtime.
    """
    if not kinds:
        msg = "the runtime needs at least one offload kind"
        raise ValueError(msg)
    definitions = _definitions(kinds, archs, libamdhip, standin=standin)
    source = runtime_sources(kinds, standin=standin)[0]
    # It is compiled at every link and makes nothing but calls: -O2 would take four times as long
    # and save some 40 ns per launch.
    flags = ("-std=c11", "-O0", "-fPIC", "-w", *extra)
    return Command((str(clang), *flags, *definitions, "-c", str(source), "-o", str(output)))


def embed_runtime_command(  # noqa: PLR0913 (what it is compiled for)
    clang: Path,
    modules: Sequence[Path],
    output: Path,
    *,
    kinds: Collection[Kind],
    archs: Mapping[Kind, Sequence[str]],
    libamdhip: Path | None = None,
    extra: Sequence[str] = (),
) -> Command:
    """Return the command that writes bitcode modules and the runtime for these kinds as one text module.

    The definitions of the runtime are weak, so that
    several such modules link. The command runs in the directory of the sources, so that the module does
    not contain its path.
    """
    definitions = _definitions(kinds, archs, libamdhip, standin=False)
    flags = ("-std=c11", "-O2", "-Xclang", "-disable-llvm-passes", "-fPIC", "-w", *extra)
    linked = (word for path in modules for word in ("-mlink-bitcode-file", str(path.absolute())))
    argv = (
        *(str(clang), *flags, *definitions, _EMBEDDED, "-S", "-emit-llvm", _ROOT_SOURCE),
        *(word for option in linked for word in ("-Xclang", option)),
        *("-o", str(output.absolute())),
    )
    return Command(argv, cwd=_DIRECTORY)


def _definitions(
    kinds: Collection[Kind],
    archs: Mapping[Kind, Sequence[str]],
    libamdhip: Path | None,
    *,
    standin: bool,
) -> list[str]:
    definitions = [f"-DMLIR_OFFLOAD_HAVE_{kind.name}" for kind in Kind if kind in kinds]
    if standin and Kind.OPENMP in kinds:
        definitions.append("-DMLIR_OFFLOAD_STANDIN")
    for kind, name in _ARCHS.items():
        if kind in kinds and archs.get(kind):
            definitions.append(f"-D{name}={','.join(archs[kind])}")
    if loads_hip(kinds):
        definitions.append(f"-DMLIR_OFFLOAD_HIP_LIBRARY={_soname(libamdhip)}")
    return definitions


class RuntimeSymbols(Struct, frozen=True):
    """What an object of the runtime defines: for itself, and for programs to call."""

    internal: tuple[str, ...]
    public: tuple[str, ...]


def read_runtime_symbols(path: Path) -> RuntimeSymbols:
    """Return the symbols of a compiled runtime that other objects see."""
    with open_view(path) as view:
        names = {
            symbol.name: symbol.is_hidden
            for symbol in read_elf(view).symbols(".symtab")
            if symbol.is_global and not symbol.is_undefined
        }
    internal = (name for name, is_hidden in names.items() if is_hidden)
    public = (name for name, is_hidden in names.items() if not is_hidden)
    return RuntimeSymbols(tuple(sorted(internal)), tuple(sorted(public)))


def runtime_link_arguments(
    kinds: Collection[Kind],
    *,
    cudart: Path | None,
    libomptarget: Path | None,
    libamdhip: Path | None = None,
) -> tuple[str, ...]:
    """Return the libraries to name after the runtime's object; libOpenCL is looked for at run time.

    `cudart` is libcudart_static.a or libcudart.so; without `libomptarget` the runtime must have
    been compiled with the stand-in. `libamdhip` is libamdhip64.so; a program that loads it needs
    none for its link. Raises ToolchainError where a kind lacks its library.
    """
    arguments: list[str] = []
    if Kind.CUDA in kinds:
        arguments += _cudart_arguments(cudart)
    if Kind.HIP in kinds:
        arguments += _hip_arguments(libamdhip, is_loaded=loads_hip(kinds))
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


def _hip_arguments(libamdhip: Path | None, *, is_loaded: bool) -> list[str]:
    if is_loaded:
        return [f"-Wl,-rpath,{libamdhip.parent}"] if libamdhip else []
    if libamdhip is None:
        msg = "the HIP runtime library (libamdhip64.so) was not found"
        hint = "apt install libamdhip64-dev, or name a ROCm folder with --rocm-path="
        raise ToolchainError(msg, hint=hint)
    return _shared_library(libamdhip)


def _soname(libamdhip: Path | None) -> str:
    """Return the name by which the dynamic linker finds the library: that of its major version."""
    if libamdhip is None:
        return _LIBAMDHIP
    match = _SONAME.match(libamdhip.resolve().name)
    return match.group() if match else _LIBAMDHIP


def _shared_library(library: Path) -> list[str]:
    return [str(library), f"-Wl,-rpath,{library.parent}"]
