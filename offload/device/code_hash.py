"""Hash the code of functions in ELF files, to identify equal code in different files."""

from __future__ import annotations

import bisect
import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from msgspec import Struct, field

from mlir_offload.offload.elf import ElfFile, ElfSection, ElfSymbol, SectionType

_REL = 9  # SHT_REL: relocations without an addend, which nvlink writes
_LAYOUTS = {SectionType.RELA: struct.Struct("<QIIq"), _REL: struct.Struct("<QII")}


class CodePiece(Struct, frozen=True):
    """Bytes of a function: `size` bytes of a section at offset `start`."""

    section: ElfSection
    start: int
    size: int

    @classmethod
    def of(cls, elf: ElfFile, symbol: ElfSymbol) -> Self:
        """Return the bytes of a function. Raises VerificationError if its section does not exist."""
        if not 0 < symbol.section < len(elf.sections):
            raise elf.view.malformed(0, f"symbol {symbol.name}", "it is in no section")
        section = elf.sections[symbol.section]
        base = 0 if elf.is_relocatable else section.address
        return cls(section, symbol.value - base, symbol.size)


class _Relocations(Struct):
    """The relocations of an object, read once per section that has some.

    Their symbols are identified by name, because indices differ between files.
    """

    elf: ElfFile
    names: list[str] = field(default_factory=list)
    tables: dict[int, list[ElfSection]] = field(default_factory=dict)
    _read: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the names of all symbols, and find the relocation tables of each section."""
        self.names = [symbol.name for symbol in self.elf.symbols(".symtab")]
        for section in self.elf.sections:
            if section.type in _LAYOUTS:
                self.tables.setdefault(section.info, []).append(section)

    def within(self, piece: CodePiece) -> Iterator[str]:
        """Yield the relocations in a piece, with their offsets in it."""
        rows = self._read.get(piece.section.number)
        if rows is None:
            rows = sorted(self._rows_of(piece.section))
            self._read[piece.section.number] = rows
        first = bisect.bisect_left(rows, (piece.start,))
        last = bisect.bisect_left(rows, (piece.start + piece.size,))
        for place, text in rows[first:last]:
            yield f"{place - piece.start} {text}\n"

    def _rows_of(self, section: ElfSection) -> Iterator[tuple[int, str]]:
        for table in self.tables.get(section.number, ()):
            layout = _LAYOUTS[table.type]
            view = self.elf.content(table)
            rows = view.table(layout, 0, view.size // layout.size, f"section {table.name}")
            for place, kind, index, *addend in rows:
                name = self.names[index] if index < len(self.names) else ""
                yield place, f"{kind} {name} {addend}"


def hash_code(elf: ElfFile, functions: Mapping[str, Iterable[CodePiece]]) -> dict[str, str]:
    """Return the SHA-256 of each function, over its bytes and the relocations in them.

    A relocation contributes the name of its symbol, not the content. Raises VerificationError if a piece is
    outside the file.
    """
    relocations = _Relocations(elf)
    return {name: _digest(elf, relocations, pieces) for name, pieces in functions.items()}


def _digest(elf: ElfFile, relocations: _Relocations, pieces: Iterable[CodePiece]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        view = elf.content(piece.section).part(piece.start, piece.size, "code")
        for chunk in view.chunks():
            digest.update(chunk)
        if elf.is_relocatable:
            for line in relocations.within(piece):
                digest.update(line.encode())
    return digest.hexdigest()
