"""Read 64-bit little-endian ELF files: sections, symbols, and pointers with relocations.

Only the headers and the requested content are read. Names and numbers follow the System V ABI, gABI 4.1.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from itertools import compress
from typing import Literal

from msgspec import Struct, field

from mlir_offload.toolchain.byte_view import ByteView

ELF_MAGIC = b"\x7fELF"
ELF64_LITTLE = b"\x02\x01"
ELF_HEADER = struct.Struct("<4s2sBBB7xHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
# Columns of tables: the place of a field in the numbers of a row, and their count. Numbers of 32 bits in section
# headers (name, type, info) and symbols (name), of 16 bits in symbols (section).
_SECTION_WORDS = 16
_NAME, _TYPE, _INFO = 0, 1, 11
_SYMBOL_WORDS = 6
_SYMBOL_SECTION, _SYMBOL_HALVES = 3, 12
_ALLOCATED = 0x2
_SPECIAL_SECTIONS = 0xFF00
_EXTENDED_INDEX = 0xFFFF
_UNDEFINED = 0
_FUNCTION = 2
# STV_INTERNAL and STV_HIDDEN.
_HIDDEN = frozenset({1, 2})
_WEAK = 2
_VISIBLE_BINDINGS = (1, _WEAK)
# Strings may share suffixes, so all names together may be longer than the table. The limit prevents
# files with overlapping strings from making the read time quadratic.
_NAME_BYTES_PER_BYTE = 64
_LONGEST_NAME = 1 << 16
_SMALL_BYTES = 1 << 20


class ElfType:
    """The type of an ELF file (`e_type`)."""

    RELOCATABLE = 1
    EXECUTABLE = 2
    SHARED = 3


class Machine:
    """The processors of host and devices (`e_machine`)."""

    X86_64 = 62
    AARCH64 = 183
    CUDA = 190
    AMDGPU = 224


class SectionType:
    """The section types that are used here (`sh_type`)."""

    PROGBITS = 1
    SYMTAB = 2
    RELA = 4
    NOTE = 7
    NOBITS = 8
    LLVM_OFFLOADING = 0x6FFF4C0B


class ElfSection(Struct, frozen=True):
    """One section header. `type` may be a value that SectionType does not contain."""

    number: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


class ElfSymbol(Struct, frozen=True):
    """One symbol. `section` is 0 if it is undefined, -1 if it has a special section index."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_function(self) -> bool:
        """Return whether the symbol is a function."""
        return self.info & 0xF == _FUNCTION

    @property
    def is_global(self) -> bool:
        """Return whether the symbol is global or weak."""
        return self.info >> 4 in _VISIBLE_BINDINGS

    @property
    def is_weak(self) -> bool:
        """Return whether the symbol is weak: a definition in another file may replace it."""
        return self.info >> 4 == _WEAK

    @property
    def is_hidden(self) -> bool:
        """Return whether the symbol is visible only in the file that it is linked into."""
        return self.other & 0x3 in _HIDDEN

    @property
    def is_undefined(self) -> bool:
        """Return whether another file must define the symbol."""
        return self.section == _UNDEFINED


class StringTable(Struct):
    """A string table. The total size of the strings that are read is limited to a multiple of its size."""

    view: ByteView
    data: bytes = b""
    _found: dict[int, str] = field(default_factory=dict)
    _left: int = 0

    def __post_init__(self) -> None:
        """Read the table."""
        self.data = self.view.whole()
        self._left = (self.view.size + _LONGEST_NAME) * _NAME_BYTES_PER_BYTE

    def places(self, prefixes: tuple[bytes, ...]) -> Collection[int]:
        """Return the offsets at which a string that begins with one of the prefixes may begin."""
        found: set[int] = set()
        for prefix in prefixes:
            at = self.data.find(prefix)
            while at >= 0:
                found.add(at)
                at = self.data.find(prefix, at + 1)
        return found

    def text_at(self, offset: int) -> str:
        """Return the string at an offset; empty if the offset is outside the table.

        Raises VerificationError if the string has no end, or if the strings overlap too often.
        """
        known = self._found.get(offset)
        if known is not None:
            return known
        if not 0 <= offset < len(self.data):
            return ""
        end = self.data.find(b"\0", offset, offset + _LONGEST_NAME)
        if end < 0:
            raise self.view.malformed(offset, "string", "it has no end")
        self._left -= end - offset
        if self._left < 0:
            raise self.view.malformed(offset, "string", "the strings overlap too often")
        text = self.data[offset:end].decode(errors="replace")
        self._found[offset] = text
        return text


class ElfFile(Struct):
    """An ELF file with its section headers. The content of the sections is read on demand.

    `headers` are the bytes of the section headers. A link needs only a few sections of most objects, so they are
    decoded on demand.
    """

    view: ByteView
    type: int
    machine: int
    flags: int
    os_abi: int
    abi_version: int
    headers: bytes = b""
    names: StringTable | None = None
    # String tables by section number. Many compilers use one table for section names and symbol names.
    _strings: dict[int, StringTable] = field(default_factory=dict)
    _sections: tuple[ElfSection, ...] | None = None
    _columns: dict[int, list[int]] = field(default_factory=dict)
    # The numbers of relocation tables by the number of the section that they change, and symbol tables by number.
    _relocations: dict[int, list[int]] | None = None
    _symbols: dict[int, bytes] = field(default_factory=dict)
    # The sections that are loaded with a program: number, start address and end address.
    _allocated: list[tuple[int, int, int]] | None = None

    @property
    def sections(self) -> tuple[ElfSection, ...]:
        """Return all sections. Raises VerificationError if a name is corrupt."""
        if self._sections is None:
            self._sections = tuple(map(self.section, range(self.section_count)))
        return self._sections

    @property
    def section_count(self) -> int:
        """Return the number of section headers."""
        return len(self.headers) // SECTION.size

    def section(self, number: int) -> ElfSection:
        """Return one section by its number."""
        at, kind, flags, address, offset, size, link, info, *_ = self._row(number)
        name = self.names.text_at(at) if self.names else ""
        return ElfSection(number, name, kind, flags, address, offset, size, link, info)

    def _row(self, number: int) -> tuple[int, ...]:
        return SECTION.unpack_from(self.headers, number * SECTION.size)

    @property
    def is_relocatable(self) -> bool:
        """Return whether it is a relocatable object file."""
        return self.type == ElfType.RELOCATABLE

    @property
    def location(self) -> str:
        """Return the file name for error messages."""
        return self.view.location

    def may_have(self, name: str) -> bool:
        """Return whether the section names contain a string; much faster than `named`."""
        return self.names is not None and self.names.data.find(name.encode()) >= 0

    def named(self, name: str) -> tuple[ElfSection, ...]:
        """Return the sections with a name."""
        return self.starting((f"{name}\0".encode(),))

    def starting(self, prefixes: tuple[bytes, ...]) -> tuple[ElfSection, ...]:
        """Return the sections whose names, including the final NUL, start with one of the prefixes."""
        places = self.names.places(prefixes) if self.names else frozenset()
        if not places:
            return ()
        is_named = map(places.__contains__, self._column(_NAME))
        return tuple([self.section(number) for number in compress(self._all, is_named)])

    def of_type(self, kind: int) -> Iterator[ElfSection]:
        """Return the sections of a type."""
        return map(self.section, self._numbers(kind))

    def _numbers(self, kind: int) -> Iterator[int]:
        """Return the numbers of the sections of a type."""
        return compress(self._all, map(kind.__eq__, self._column(_TYPE)))

    @property
    def _all(self) -> range:
        return range(self.section_count)

    def _column(self, place: int) -> list[int]:
        """Return a field of all section headers, because a loop in C over numbers is faster than one over headers."""
        found = self._columns.get(place)
        if found is None:
            found = self._columns[place] = _column(self.headers, "I", place, _SECTION_WORDS)
        return found

    def content(self, section: ElfSection, *, form: str = "") -> ByteView:
        """Return the content of a section; empty for SHT_NOBITS.

        Raises VerificationError if the section exceeds the file.
        """
        size = 0 if section.type == SectionType.NOBITS else section.size
        offset = section.offset if size else 0
        return self.view.part(offset, size, f"section {section.name}", form=form)

    def _content_of(self, number: int) -> ByteView:
        """Return the content of a section like `content`, but decode its name only for an error."""
        row = self._row(number)
        if row[1] == SectionType.NOBITS or row[4] + row[5] > self.view.size:
            return self.content(self.section(number))
        return self.view.part(row[4], row[5], "section")

    def symbols(self, table: str) -> Iterator[ElfSymbol]:
        """Yield the symbols of `.symtab` or `.dynsym`, including symbols without a name."""
        for section in self.named(table):
            yield from self.symbols_of(section)

    def symbols_of(
        self, section: ElfSection, prefixes: tuple[bytes, ...] = ()
    ) -> Iterator[ElfSymbol]:
        """Yield the symbols of a symbol table in order: all, or those whose names start with a prefix."""
        names = self.strings(section.link)
        places = names.places(prefixes) if names else frozenset()
        if prefixes and not places:
            return
        data = self._table(section.number, SYMBOL)
        rows: Iterable[tuple[int, ...]] = SYMBOL.iter_unpack(data)
        if prefixes:
            is_named = map(places.__contains__, _column(data, "I", _NAME, _SYMBOL_WORDS))
            rows = compress(rows, is_named)
        for name, info, other, index, value, size in rows:
            text = names.text_at(name) if names is not None else ""
            yield ElfSymbol(text, info, other, _place(index), value, size)

    def undefined_names(self) -> Iterator[str]:
        """Yield the names of the undefined symbols in the tables `.symtab`, in order."""
        for number in self._numbers(SectionType.SYMTAB):
            names = self.strings(self._row(number)[6])
            if names is not None:
                data = self._table(number, SYMBOL)
                sections = _column(data, "H", _SYMBOL_SECTION, _SYMBOL_HALVES)
                is_undefined = map(_UNDEFINED.__eq__, sections)
                places = compress(_column(data, "I", _NAME, _SYMBOL_WORDS), is_undefined)
                yield from map(names.text_at, places)

    def _table(self, number: int, layout: struct.Struct) -> bytes:
        """Return the complete rows of a table that is a section."""
        view = self._content_of(number)
        return view.read(0, view.size // layout.size * layout.size, "section")

    def strings(self, index: int) -> StringTable | None:
        """Return the string table in a section, or None if there is no such section."""
        if not 0 < index < self.section_count:
            return None
        if index not in self._strings:
            self._strings[index] = StringTable(self._content_of(index))
        return self._strings[index]

    def pointers(self, section: ElfSection) -> dict[int, tuple[int, int]]:
        """Return the relocated pointers in a section: offset -> (section index, offset in that section).

        In a linked file, the index is -1 and the second number is an address.
        """
        found: dict[int, tuple[int, int]] = {}
        if self._relocations is None:
            # An object with a thousand kernels has as many sections with entries.
            self._relocations = {}
            owners = self._column(_INFO) if self.is_relocatable else ()
            for number in self._numbers(SectionType.RELA):
                self._relocations.setdefault(owners[number] if owners else -1, []).append(number)
        for number in self._relocations.get(section.number if self.is_relocatable else -1, ()):
            self._add_pointers(found, number, section)
        return found

    def text_of(self, pointer: tuple[int, int]) -> str:
        """Return the string at a pointer from `pointers`; empty if the pointer is invalid."""
        index, offset = pointer
        if not 0 <= index < self.section_count:
            index, offset = self._placed(offset)
        if index < 0 or offset < 0:
            return ""
        # The names of all entries are usually in one small section: read it at once.
        if self._row(index)[5] <= _SMALL_BYTES:
            table = self.strings(index)
            return table.text_at(offset) if table else ""
        view = self._content_of(index)
        return view.text(offset, "string") if offset < view.size else ""

    def _placed(self, address: int) -> tuple[int, int]:
        """Return the section at an address and the offset in it; -1 if there is none."""
        if self._allocated is None:
            self._allocated = [
                (number, row[3], row[3] + row[5])
                for number, row in enumerate(SECTION.iter_unpack(self.headers))
                if row[2] & _ALLOCATED and row[1] != SectionType.NOBITS
            ]
        for place, (number, begin, end) in enumerate(self._allocated):
            if begin <= address < end:
                # The next address is usually in the same section. They do not overlap, except .tbss, which has no bytes.
                self._allocated.insert(0, self._allocated.pop(place))
                return number, address - begin
        return -1, 0

    def _add_pointers(
        self, found: dict[int, tuple[int, int]], table: int, section: ElfSection
    ) -> None:
        link = self._row(table)[6]
        if link not in self._symbols:
            has_symbols = 0 < link < self.section_count
            self._symbols[link] = self._content_of(link).whole() if has_symbols else b""
        symbols = self._symbols[link]
        is_relocatable = self.is_relocatable
        base = 0 if is_relocatable else section.address
        end = base + section.size
        rows = RELOCATION.iter_unpack(self._table(table, RELOCATION))
        for place, info, addend in [row for row in rows if base <= row[0] < end]:
            # Only the symbols of these relocations are decoded, because they are few.
            at = (info >> 32) * SYMBOL.size
            if not at:
                found[place - base] = (-1, addend)
            elif at + SYMBOL.size <= len(symbols):
                _, _, _, symbol_index, value, _ = SYMBOL.unpack_from(symbols, at)
                index = _place(symbol_index) if is_relocatable else -1
                found[place - base] = (index, value + addend)


def read_elf(view: ByteView) -> ElfFile:
    """Read the headers of an ELF file.

    Raises VerificationError if it is not a 64-bit little-endian ELF file, or is corrupt.
    """
    view = view.part(0, view.size, "content", form="ELF file")
    header = view.unpack(ELF_HEADER, 0, "header")
    magic, form, _, os_abi, abi_version, kind, machine, _, _, _, sections_at, flags, *sizes = header
    if magic != ELF_MAGIC or form != ELF64_LITTLE:
        raise view.malformed(0, "identification", "not a 64-bit little-endian ELF file")
    elf = ElfFile(view, kind, machine, flags, os_abi, abi_version)
    if sections_at:
        _read_sections(elf, sections_at, *sizes[3:])
    return elf


def _read_sections(elf: ElfFile, begin: int, entry_size: int, count: int, number: int) -> None:
    """Set the section headers and the section name table."""
    view = elf.view
    if entry_size != SECTION.size:
        reason = f"found {entry_size}, expected 64"
        raise view.malformed(58, "section header size", reason)
    if not count or number == _EXTENDED_INDEX:
        # The header fields are too small for 65,280 or more sections; section 0 contains the numbers.
        first = view.unpack(SECTION, begin, "section header")
        count, number = count or first[5], first[6] if number == _EXTENDED_INDEX else number
    elf.headers = view.read(begin, SECTION.size * count, "section headers")
    if not 0 <= number < count:
        raise view.malformed(62, "section name index", f"there is no section {number}")
    offset, size = SECTION.unpack_from(elf.headers, number * SECTION.size)[4:6]
    elf.names = names = StringTable(view.part(offset, size, "section names"))
    elf._strings[number] = names  # noqa: SLF001 (of this module)
    if not names.data.endswith(b"\0"):
        # Only in this case can a name have no end. Check all names, so that the error does not depend on the caller.
        for row in SECTION.iter_unpack(elf.headers):
            names.text_at(row[0])


def _column(rows: bytes, form: Literal["H", "I"], place: int, count: int) -> list[int]:
    """Return one field of all rows of a table. The host is little-endian, as the file."""
    return memoryview(rows).cast(form)[place::count].tolist()


def _place(index: int) -> int:
    """Return the section number of a symbol; -1 for a special section index."""
    return index if index < _SPECIAL_SECTIONS else -1
