"""Read 64-bit little-endian ELF files: sections, symbols, pointers that the linker filled in."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterator

ELF_MAGIC = b"\x7fELF"
_ELF64_LITTLE = b"\x02\x01"
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_NOBITS = "SHT_NOBITS"
_ALLOCATED = 0x2
_SPECIAL_SECTIONS = 0xFF00
_PARSER_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class ElfSection:
    """One section; `data` is empty where the file holds no bytes for it."""

    index: int
    name: str
    type: str
    flags: int
    address: int
    link: int
    info: int
    data: bytes

    @property
    def is_allocated(self) -> bool:
        """Return whether the section has a place in memory."""
        return bool(self.flags & _ALLOCATED)


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """One symbol; `section` is 0 where it is undefined, and -1 where it has no section."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_function(self) -> bool:
        """Return whether the symbol is a function."""
        return self.info & 0xF == 2  # noqa: PLR2004 (STT_FUNC)

    @property
    def is_global(self) -> bool:
        """Return whether other files see the symbol."""
        return self.info >> 4 in (1, 2)


@dataclass(frozen=True, slots=True)
class ElfFile:
    """The sections of an ELF file, all read."""

    is_relocatable: bool
    sections: tuple[ElfSection, ...]
    location: str

    def named(self, name: str) -> tuple[ElfSection, ...]:
        """Return the sections of that name."""
        return tuple(section for section in self.sections if section.name == name)

    def symbols(self, table: str) -> Iterator[ElfSymbol]:
        """Return the symbols of `.symtab` or `.dynsym`, those of no name included."""
        for section in self.named(table):
            yield from self.symbols_of(section)

    def symbols_of(self, section: ElfSection) -> Iterator[ElfSymbol]:
        """Return the symbols of a symbol table, in their order."""
        names = self.sections[section.link].data if section.link < len(self.sections) else b""
        whole = len(section.data) // _SYMBOL.size * _SYMBOL.size
        for name, info, other, index, value, size in _SYMBOL.iter_unpack(section.data[:whole]):
            place = index if index < _SPECIAL_SECTIONS else -1
            yield ElfSymbol(text_at(names, name), info, other, place, value, size)

    def pointers(self, section: ElfSection) -> dict[int, tuple[int, int]]:
        """Return what the linker stores in a section: offset -> (section index, offset therein).

        In a linked file the index is -1 and the second number an address.
        """
        found: dict[int, tuple[int, int]] = {}
        for table in self.sections:
            if table.type != "SHT_RELA" or (self.is_relocatable and table.info != section.index):
                continue
            found.update(self._pointers_of(table, section))
        return found

    def text_of(self, pointer: tuple[int, int]) -> str:
        """Return the string that a pointer of `pointers` names; empty where it leads nowhere."""
        index, offset = pointer
        if 0 <= index < len(self.sections):
            return text_at(self.sections[index].data, offset)
        for section in self.sections:
            if section.is_allocated and 0 <= offset - section.address < len(section.data):
                return text_at(section.data, offset - section.address)
        return ""

    def _pointers_of(
        self, table: ElfSection, section: ElfSection
    ) -> Iterator[tuple[int, tuple[int, int]]]:
        linked = self.sections[table.link] if table.link < len(self.sections) else None
        symbols = list(self.symbols_of(linked)) if linked else []
        base = 0 if self.is_relocatable else section.address
        whole = len(table.data) // _RELOCATION.size * _RELOCATION.size
        for place, info, addend in _RELOCATION.iter_unpack(table.data[:whole]):
            offset = place - base
            if not 0 <= offset < len(section.data):
                continue
            number = info >> 32
            if not number:
                yield offset, (-1, addend)
            elif number < len(symbols):
                symbol = symbols[number]
                index = symbol.section if self.is_relocatable else -1
                yield offset, (index, symbol.value + addend)


def parse_elf(data: bytes, *, location: str = "") -> ElfFile:
    """Read an ELF file.

    Raises VerificationError where it is none, is not 64-bit little-endian, or is damaged.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    if data[:4] != ELF_MAGIC or data[4:6] != _ELF64_LITTLE:
        msg = "not a 64-bit little-endian ELF file"
        raise VerificationError(msg, location=location)
    try:
        elf = ELFFile(io.BytesIO(data))
        sections = tuple(
            ElfSection(
                index=index,
                name=section.name,
                type=str(section["sh_type"]),
                flags=section["sh_flags"],
                address=section["sh_addr"],
                link=section["sh_link"],
                info=section["sh_info"],
                data=b""
                if section["sh_type"] == _NOBITS
                else data[section["sh_offset"] : section["sh_offset"] + section["sh_size"]],
            )
            for index, section in enumerate(elf.iter_sections())
        )
        return ElfFile(elf["e_type"] == "ET_REL", sections, location)
    # A damaged header makes the library's parser fail in ways of its own.
    except (ELFError, *_PARSER_FAILURES) as error:
        msg = f"damaged ELF file: {error}"
        raise VerificationError(msg, hint="make the file again", location=location) from error


def text_at(data: bytes, offset: int) -> str:
    """Return the NUL-ended string at an offset of a string table; empty where there is none."""
    if not 0 <= offset < len(data):
        return ""
    end = data.find(b"\0", offset)
    return data[offset : end if end >= 0 else len(data)].decode(errors="replace")
