"""Find MLIR's runtime libraries for programs that call their functions, such as printMemrefF32."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path

from msgspec import Struct

from mlir_offload.offload.elf import read_elf
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.tables import load_table


class RunnerLibrary(Struct, frozen=True):
    """A library: its name for `-l`, and a pattern of the functions that it defines."""

    name: str
    functions: re.Pattern[str]


class RunnerTable(Struct, frozen=True, dict=True):
    """The libraries of all releases, and their directories within an installation."""

    folders: tuple[str, ...]
    file: str
    package: str
    libraries: tuple[RunnerLibrary, ...]

    def library_of(self, function: str) -> RunnerLibrary | None:
        """Return the library that defines a function, or None."""
        return next((one for one in self.libraries if one.functions.fullmatch(function)), None)

    @cached_property
    def any_function(self) -> re.Pattern[str]:
        """Return a pattern of the functions of all libraries."""
        return pattern("|".join(one.functions.pattern for one in self.libraries), re.ASCII)


@cache
def load_runner_table() -> RunnerTable:
    """Return the table that ships with the package."""
    table = load_table("mlir_offload.toolchain", "runner_libraries")
    libraries = (
        RunnerLibrary(row["name"], pattern(row["functions"], re.ASCII))
        for row in table["libraries"]
    )
    return RunnerTable(
        folders=tuple(table["folders"]),
        file=table["file"],
        package=table["package"],
        libraries=tuple(libraries),
    )


def called_libraries(names: Iterable[str]) -> tuple[RunnerLibrary, ...]:
    """Return the libraries that define functions with these names."""
    table = load_runner_table()
    found = {table.library_of(name) for name in names}
    return tuple(one for one in table.libraries if one in found)


def find_library(library: RunnerLibrary, folders: Sequence[Path]) -> Path | None:
    """Return the path of a library in the first directory that contains it, or None."""
    pattern = load_runner_table().file.format(name=library.name)
    return next((path for folder in folders for path in sorted(folder.glob(pattern))), None)


def defined_functions(library: Path) -> frozenset[str]:
    """Return the functions that a shared library exports.

    Raises InputOutputError if the file cannot be read, VerificationError if it is corrupt.
    """
    with open_view(library) as view:
        symbols = read_elf(view).symbols(".dynsym")
        return frozenset(one.name for one in symbols if one.is_function and not one.is_undefined)
