"""Read the offload data of a plain host object in one pass over its bytes.

A link reads hundreds of objects, and nearly all of them are alike: small files with at most one container of
version 1, and entries with a relocated name. This reader takes a quarter of the time of `elf`, `object_entry` and
`offload_section`, because it keeps nothing but the result. It decides nothing by itself: for an object with anything
else in it, or with anything wrong, the result is None, and those readers read it and report the error.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from mlir_offload.offload.abi import kind_name
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.container.packager import ALIGNMENT, ENTRY, HEADER, MAGIC, STRING_ENTRY_V1
from mlir_offload.offload.elf import (
    ELF64_LITTLE,
    ELF_HEADER,
    ELF_MAGIC,
    RELOCATION,
    SECTION,
    SYMBOL,
    ElfType,
    SectionType,
)
from mlir_offload.offload.host.object_entry import HostEntry, array_named, array_names
from mlir_offload.toolchain.byte_view import ByteView

_LARGEST = 1 << 16
_OFFLOADING = b".llvm.offloading\0"
# In the names of sections that only the other readers read: of device-linked objects, fat binaries, learned rows.
_OTHERS = (b".llvm.offloading.relocatable", b"fatbin", b".mlir_offload.learned")
_EMBEDDED = b"mgpu"
_WEAK, _HIDDEN = 2, (1, 2)


class PlainObject(Struct, frozen=True):
    """The images, the entries and the undefined symbols of an object."""

    images: tuple[PackagedImage, ...]
    entries: tuple[HostEntry, ...]
    undefined: tuple[str, ...]


class _UnusualError(Exception):
    """The object is not plain."""


def read_plain(view: ByteView) -> PlainObject | None:
    """Return the offload data of a plain object, None for any other file."""
    if view.size > _LARGEST:
        return None
    try:
        return _Reader(view).read()
    except (_UnusualError, struct.error, OverflowError, UnicodeDecodeError):
        return None


class _Reader:
    """The bytes of an object, and the columns of its section headers."""

    __slots__ = ("data", "infos", "names", "names_at", "rows", "text_left", "types", "view")

    def __init__(self, view: ByteView) -> None:
        self.view = view
        self.data = data = view.whole()
        # Far below the limits of the other readers.
        self.text_left = len(data)
        magic, form, *_, kind, _, _, _, _, begin, _, _, _, _, size, count, number = (
            ELF_HEADER.unpack_from(data)
        )
        is_usual = magic == ELF_MAGIC and form == ELF64_LITTLE and kind == ElfType.RELOCATABLE
        if not is_usual or size != SECTION.size or not 0 < number < count:
            raise _UnusualError
        self.rows = rows = data[begin : begin + size * count]
        if not begin or len(rows) < size * count:
            raise _UnusualError
        words = memoryview(rows).cast("I")
        self.names_at, self.types, self.infos = (words[at::16].tolist() for at in (0, 1, 11))
        self.names = self.content(number)
        if self.names[-1:] != b"\0" or any(self.names.find(one) >= 0 for one in _OTHERS):
            raise _UnusualError

    def read(self) -> PlainObject:
        images: list[PackagedImage] = []
        entries: list[HostEntry] = []
        for number in self._offload_sections():
            name = self.text(self.names, self.names_at[number])
            if name == ".llvm.offloading":
                images.append(self._image(number))
            else:
                entries += self._entries(number, name)
        return PlainObject(tuple(images), tuple(entries), tuple(self._undefined()))

    def _offload_sections(self) -> list[int]:
        """Return the sections with a container or with entries."""
        places = set()
        for name in (_OFFLOADING, *array_names(())):
            at = self.names.find(name)
            while at >= 0:
                places.add(at)
                at = self.names.find(name, at + 1)
        return [number for number, at in enumerate(self.names_at) if at in places]

    def content(self, number: int) -> bytes:
        """Return the bytes of a section that has some."""
        row = SECTION.unpack_from(self.rows, number * SECTION.size)
        content = self.data[row[4] : row[4] + row[5]]
        if row[1] == SectionType.NOBITS or len(content) < row[5]:
            raise _UnusualError
        return content

    def text(self, table: bytes, at: int) -> str:
        """Return a string of a table."""
        end = table.find(b"\0", at) if 0 <= at < len(table) else -1
        self.text_left -= end - at
        if end < 0 or self.text_left < 0:
            raise _UnusualError
        return table[at:end].decode()

    def _image(self, number: int) -> PackagedImage:
        """Return the image of a container of version 1 that fills its section."""
        data = self.content(number)
        magic, version, size, entry_at, entry_size = HEADER.unpack_from(data)
        is_usual = magic == MAGIC and version == 1 and entry_size == ENTRY.size
        if not is_usual or size != len(data) or size % ALIGNMENT:
            raise _UnusualError
        image_kind, kind, flags, strings_at, count, begin, length = ENTRY.unpack_from(
            data, entry_at
        )
        strings = data[strings_at : strings_at + count * STRING_ENTRY_V1.size]
        if begin + length > size or strings_at + count * STRING_ENTRY_V1.size > size:
            raise _UnusualError
        left = self.text_left
        pairs = STRING_ENTRY_V1.iter_unpack(strings)
        texts = [(self.text(data, key), self.text(data, value)) for key, value in pairs]
        if left - self.text_left > size:
            raise _UnusualError
        view = self.view
        start = view.start + SECTION.unpack_from(self.rows, number * SECTION.size)[4] + begin
        return PackagedImage(
            kind_name(kind) if kind else "none",
            image_kind,
            flags,
            tuple(texts),
            ByteView(view.source, start, length, "device image", view.location, view.meter),
            version,
            kind,
        )

    def _entries(self, number: int, section: str) -> list[HostEntry]:
        """Return the entries of an array; each has a relocated name."""
        content = self.content(number)
        array = array_named(section, ())
        if array is None or self.types[number] != SectionType.PROGBITS:
            raise _UnusualError
        pointers = self._pointers(number)
        layout = array.layouts[0 in pointers or content[:8] != bytes(8)]
        size, places = layout.members.size, layout.numbers
        if len(content) % size:
            raise _UnusualError
        entries = []
        for start, row in zip(
            range(layout.name_at, len(content), size),
            layout.members.iter_unpack(content),
            strict=False,
        ):
            table, at = pointers.get(start, (0, 0))
            name = self.text(self.content(table), at) if 0 < table < len(self.types) else ""
            if not name:
                raise _UnusualError
            values = (*row, 0)
            entries.append(
                HostEntry(
                    array.kind or kind_name(values[places["kind"]]),
                    name,
                    values[places["size"]],
                    values[places["flags"]],
                    values[places["data"]],
                    section,
                    len(layout.fields),
                    array.is_device_linked,
                )
            )
        return entries

    def _pointers(self, section: int) -> dict[int, tuple[int, int]]:
        """Return the relocated pointers in a section: offset -> (section, offset in that section)."""
        found = {}
        for number, kind in enumerate(self.types):
            if kind == SectionType.RELA and self.infos[number] == section:
                link = SECTION.unpack_from(self.rows, number * SECTION.size)[6]
                symbols = self.content(link) if 0 < link < len(self.types) else b""
                for place, info, addend in RELOCATION.iter_unpack(self.content(number)):
                    _, _, _, index, value, _ = SYMBOL.unpack_from(
                        symbols, (info >> 32) * SYMBOL.size
                    )
                    found[place] = (index, value + addend)
        return found

    def _undefined(self) -> list[str]:
        """Return the names of the undefined symbols."""
        found = []
        for number, kind in enumerate(self.types):
            if kind == SectionType.SYMTAB:
                link = SECTION.unpack_from(self.rows, number * SECTION.size)[6]
                names = self.content(link) if 0 < link < len(self.types) else b""
                symbols = self.content(number)
                if names.find(_EMBEDDED) >= 0 and _has_embedded(symbols):
                    raise _UnusualError
                if len(symbols) % SYMBOL.size:
                    raise _UnusualError
                columns = memoryview(symbols)
                sections = columns.cast("H")[3::12].tolist()
                places = columns.cast("I")[::6].tolist()
                found += [
                    self.text(names, at)
                    for at, one in zip(places, sections, strict=True)
                    if not one
                ]
        return found


def _has_embedded(symbols: bytes) -> bool:
    """Return whether there are weak hidden symbols, as those of an embedded runtime."""
    kinds = zip(symbols[4 :: SYMBOL.size], symbols[5 :: SYMBOL.size], strict=True)
    return any(info >> 4 == _WEAK and other & 3 in _HIDDEN for info, other in kinds)
