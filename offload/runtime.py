"""The C runtime that is linked into every program: its sources, compile and link commands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.elf import read_elf
from mlir_offload.offload.kind_format import RuntimePlan, formats_of
from mlir_offload.toolchain.byte_view import open_view, sha256
from mlir_offload.toolchain.process import Command

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mlir_offload.toolchain.target import Kind

EXIT_STATUS = 70
"""The exit status of a program that the runtime ends (MLIR_OFFLOAD_EXIT_STATUS)."""

_DIRECTORY = Path(__file__).parent / "runtime"
_ROOT_SOURCE = "runtime.c"
_EMBEDDED = "-DMLIR_OFFLOAD_EMBEDDED"
MEMREF_COPY = "memrefCopy"
"""The function that host code calls; upstream it is in libmlir_c_runner_utils."""
_MEMREF_COPY_SOURCE = _DIRECTORY / "memref_copy.c"


def runtime_include_directory() -> Path:
    """Return the directory of the C sources and of `mlir_offload.h`, the header for C and C++ programs."""
    return _DIRECTORY


@cache
def runtime_files() -> tuple[tuple[str, bytes], ...]:
    """Return the names and contents of all C sources and headers of the runtime, sorted."""
    paths = sorted((*_DIRECTORY.glob("*.c"), *_DIRECTORY.glob("*.h")))
    return tuple((path.name, path.read_bytes()) for path in paths)


@cache
def runtime_digest() -> str:
    """Return a hash of the runtime's sources; code compiled for another hash may be incompatible."""
    found = sha256()
    for name, content in runtime_files():
        found.update(f"{name} {len(content)}\n".encode() + content)
    return found.hexdigest()


def runtime_source() -> Path:
    """Return the C file to compile, which includes the others."""
    return _DIRECTORY / _ROOT_SOURCE


def runtime_compile_command(  # noqa: PLR0913 (what it is compiled for)
    clang: Path,
    output: Path,
    *,
    kinds: Collection[Kind],
    archs: Mapping[Kind, Sequence[str]],
    fallback: bool,
    libraries: Mapping[Kind, Path | None] | None = None,
    extra: Sequence[str] = (),
) -> Command:
    """Return the command that compiles the runtime to one relocatable object.

    `archs` are the architectures of the program's GPU images, for error messages. `libraries` are those of
    the vendors, by kind, for names of libraries that the runtime loads. Raises ValueError if there is no
    kind, because such a program needs no runtime.
    """
    if not kinds:
        msg = "the runtime needs at least one offload kind"
        raise ValueError(msg)
    definitions = _definitions(RuntimePlan(kinds, libraries or {}, fallback), archs)
    # The runtime is compiled at every link and only makes calls: -O2 would take four times as long and save
    # about 40 ns per launch.
    flags = ("-std=c11", "-O0", "-fPIC", "-w", *extra)
    return Command(
        (str(clang), *flags, *definitions, "-c", str(runtime_source()), "-o", str(output))
    )


def embed_runtime_command(  # noqa: PLR0913 (what it is compiled for)
    clang: Path,
    modules: Sequence[Path],
    output: Path,
    *,
    kinds: Collection[Kind],
    archs: Mapping[Kind, Sequence[str]],
    libraries: Mapping[Kind, Path | None] | None = None,
    extra: Sequence[str] = (),
) -> Command:
    """Return the command that writes bitcode modules and the runtime as one textual module.

    The definitions of the runtime are weak, so that several such modules link. The command runs in the
    directory of the sources, so that the module does not contain its path.
    """
    definitions = _definitions(RuntimePlan(kinds, libraries or {}), archs)
    flags = ("-std=c11", "-O2", "-Xclang", "-disable-llvm-passes", "-fPIC", "-w", *extra)
    linked = (word for path in modules for word in ("-mlink-bitcode-file", str(path.absolute())))
    argv = (
        *(str(clang), *flags, *definitions, _EMBEDDED, "-S", "-emit-llvm", _ROOT_SOURCE),
        *(word for option in linked for word in ("-Xclang", option)),
        *("-o", str(output.absolute())),
    )
    return Command(argv, cwd=_DIRECTORY)


def _definitions(plan: RuntimePlan, archs: Mapping[Kind, Sequence[str]]) -> list[str]:
    formats = formats_of(plan.kinds)
    definitions = [f"-DMLIR_OFFLOAD_HAVE_{one.name.upper()}" for one in formats]
    for one in formats:
        if one.archs_macro and archs.get(one.name):
            definitions.append(f"-D{one.archs_macro}={','.join(archs[one.name])}")
        definitions += one.runtime_definitions(plan)
    return definitions


class RuntimeSymbols(Struct, frozen=True):
    """The symbols that an object of the runtime defines: internal ones, and those that programs call."""

    internal: tuple[str, ...]
    public: tuple[str, ...]


def read_runtime_symbols(path: Path) -> RuntimeSymbols:
    """Return the global symbols of a compiled runtime."""
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
    kinds: Collection[Kind], libraries: Mapping[Kind, Path | None]
) -> tuple[str, ...]:
    """Return the libraries that follow the runtime's object; libOpenCL is loaded at run time.

    `libraries` are those of the vendors, by kind. If libomptarget, the library for the CPU, is missing, the
    runtime must be compiled with the fallback. Raises ToolchainError if another kind lacks its library.
    """
    plan = RuntimePlan(kinds, libraries)
    arguments = (word for one in formats_of(kinds) for word in one.link_arguments(plan))
    return (*arguments, "-ldl", "-lpthread")


def memref_copy_compile_command(clang: Path, output: Path, extra: Sequence[str] = ()) -> Command:
    """Return the command that compiles the strided memref copy, which needs no other part of the runtime."""
    flags = ("-std=c11", "-O2", "-fPIC", "-w", *extra, "-c", str(_MEMREF_COPY_SOURCE))
    return Command((str(clang), *flags, "-o", str(output)))
