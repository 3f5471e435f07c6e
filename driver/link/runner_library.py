"""The runner libraries of MLIR, added to a link that calls their functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.offload.link.runner_library import (
    RunnerLibrary,
    called_libraries,
    defined_functions,
    find_library,
    load_runner_table,
)
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.pattern import pattern

_FOLDER = "-L"
# The messages of lld and GNU ld.
_UNDEFINED = pattern(r"undefined (?:symbol: |reference to [`'])(\w+)")
_C_INTERFACE = "_mlir_ciface_"


def runner_library_arguments(context: BuildContext) -> tuple[str, ...]:
    """Return the libraries of the lowering LLVM that define functions called by the objects.

    They come last and with --as-needed, so that definitions in the user's files take precedence. A library
    that is not installed is omitted; the link then fails, and `explain_missing` names it.
    """
    folders = runner_library_folders(context)
    found = (find_library(one, folders) for one in called_libraries(context.library_functions))
    libraries = [path for path in found if path is not None]
    if not libraries:
        return ()
    places = dict.fromkeys(f"-Wl,-rpath,{path.parent}" for path in libraries)
    files = map(str, libraries)
    return ("-Wl,--push-state,--as-needed", *files, "-Wl,--pop-state", *places)


def runner_library_folders(context: BuildContext) -> list[Path]:
    """Return the directories of -L options and the library directories of the lowering LLVM."""
    named = [Path(item[2:]) for item in context.options.link_items if item.startswith(_FOLDER)]
    prefix = context.mlir.prefix
    return [*named, *(prefix / folder for folder in load_runner_table().folders)]


def explain_missing(
    error: MlirOffloadError, stderr: str, major: int, folders: Sequence[Path]
) -> None:
    """Name the MLIR library that defines an undefined function in the error of a link."""
    table = load_runner_table()
    for function, library in _named(_UNDEFINED.findall(stderr)):
        file = f"lib{library.name}.so of LLVM {major}"
        found = find_library(library, folders)
        if found is None:
            package = table.package.format(major=major)
            error.message = f"{function} is in {file}, which was not found"
            error.hint = (
                f"apt install {package}, name its folder with -L, or link a library of your own"
            )
            return
        # Some functions can only be called by the C interface, which passes the address of a descriptor.
        if f"{_C_INTERFACE}{function}" in defined_functions(found):
            error.message = f"{file} defines {function} only for calls by the C interface"
            error.hint = (
                f"declare {function} with `attributes {{llvm.emit_c_interface}}`,"
                " or link a library of your own"
            )
            return


def _named(functions: Iterable[str]) -> Sequence[tuple[str, RunnerLibrary]]:
    table = load_runner_table()
    return [(name, one) for name in functions if (one := table.library_of(name))]
