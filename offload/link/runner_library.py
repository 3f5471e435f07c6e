"""The libraries that come with MLIR, for programs that call their functions: printMemrefF32 and the like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from mlir_offload.offload.container.archive import is_archive, iterate_members
from mlir_offload.offload.elf import ELF_MAGIC, ElfFile, SectionType, read_elf, symbol_strings
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.tables import load_table


class RunnerLibrary(Struct, frozen=True):
    """A library by its name for `-l`, and the functions that it has."""

    name: str
    functions: re.Pattern[str]


class RunnerTable(Struct, frozen=True):
    """The libraries of every release, and where a release has them."""

    folders: tuple[str, ...]
    words: tuple[bytes, ...]
    file: str
    package: str
    libraries: tuple[RunnerLibrary, ...]

    def library_of(self, function: str) -> RunnerLibrary | None:
        """Return the library that has the function, or None."""
        return next((one for one in self.libraries if one.functions.fullmatch(function)), None)

    @property
    def any_function(self) -> re.Pattern[bytes]:
        """Return a pattern that finds a function of any library in a string table."""
        names = "|".join(one.functions.pattern for one in self.libraries)
        # Objects are full of zeros: most are passed over at a glance.
        return re.compile(rf"\0(?!\0)(?:{names})\0".encode())

    def may_name(self, data: bytes) -> bool:
        """Return whether a word of the functions is in the data: far faster than to look for them."""
        return any(word in data for word in self.words)


@cache
def load_runner_table() -> RunnerTable:
    """Return the table that ships with the package."""
    table = load_table("mlir_offload.toolchain", "runner_libraries")
    libraries = (
        RunnerLibrary(row["name"], re.compile(row["functions"], re.ASCII))
        for row in table["libraries"]
    )
    return RunnerTable(
        folders=tuple(table["folders"]),
        words=tuple(word.encode() for word in table["words"]),
        file=table["file"],
        package=table["package"],
        libraries=tuple(libraries),
    )


def called_libraries(paths: Iterable[Path]) -> tuple[RunnerLibrary, ...]:
    """Return the libraries whose functions objects and static libraries leave undefined.

    Raises InputOutputError for a file that cannot be read, VerificationError for a damaged one.
    """
    table = load_runner_table()
    names = {name for path in paths for name in _undefined(path, table)}
    found = {table.library_of(name) for name in names}
    return tuple(one for one in table.libraries if one in found)


def find_library(library: RunnerLibrary, folders: Sequence[Path]) -> Path | None:
    """Return the library in the first of the folders that has it."""
    pattern = load_runner_table().file.format(name=library.name)
    return next((path for folder in folders for path in sorted(folder.glob(pattern))), None)


def defined_functions(library: Path) -> frozenset[str]:
    """Return the functions that a shared library offers.

    Raises InputOutputError for a file that cannot be read, VerificationError for a damaged one.
    """
    with open_view(library) as view:
        symbols = read_elf(view).symbols(".dynsym")
        return frozenset(one.name for one in symbols if one.is_function and not one.is_undefined)


def _undefined(path: Path, table: RunnerTable) -> Iterator[str]:
    with open_view(path) as view:
        if not is_archive(view):
            yield from _undefined_in(view, table)
            return
        for member in iterate_members(view):
            if member.content is not None:
                yield from _undefined_in(member.content, table)


def _undefined_in(view: ByteView, table: RunnerTable) -> Iterator[str]:
    if view.head(4) != ELF_MAGIC or not any(map(table.may_name, symbol_strings(view))):
        return
    elf = read_elf(view)
    if elf.is_relocatable:
        yield from _undefined_names(elf, table.any_function)


def _undefined_names(elf: ElfFile, wanted: re.Pattern[bytes]) -> Iterator[str]:
    for section in elf.sections:
        names = elf.strings(section.link) if section.type == SectionType.SYMTAB else None
        # Most objects call none of the functions: their symbols are not even looked at.
        if names is None or not wanted.search(names.data):
            continue
        for symbol in elf.symbols_of(section):
            if symbol.is_undefined and symbol.is_global:
                yield symbol.name
