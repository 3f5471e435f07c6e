"""Find device code and its registration in objects, static libraries, and linked files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir_offload.offload.abi import EntryLayout, entry_layouts, kind_names
from mlir_offload.offload.archive import is_archive, iterate_members
from mlir_offload.offload.binary import PackagedImage, parse_binary
from mlir_offload.offload.elf import ELF_MAGIC, ElfFile, ElfSection, parse_elf
from mlir_offload.toolchain.errors import InputOutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OFFLOAD_SECTION = ".llvm.offloading"
_FINISHED_SECTION = ".llvm.offloading.relocatable"
FATBIN_SECTION = ".nv_fatbin"
_RUNTIME_PREFIXES = ("mgpu", "mlir_offload_")
# A file without any of these words is not parsed: most objects of a program have no device code.
_WORDS = (b"offload", b"mgpu", b"mlir_offload_", b".nv_fatbin")


@dataclass(frozen=True, slots=True)
class RegisteredSymbol:
    """A host entry: the kind it is registered for, the device symbol, its size (0: a kernel).

    It is finished where `clang -r --offload-link` has linked its device code already.
    """

    kind: str
    name: str
    size_bytes: int
    is_finished: bool = False

    @property
    def is_kernel(self) -> bool:
        """Return whether the entry stands for a kernel, not for a variable."""
        return self.size_bytes == 0


@dataclass(frozen=True, slots=True)
class ObjectContents:
    """What one ELF file, or one member of a library, holds of offloading.

    `entry_arrays` are the sections of its host entries with the number of members of an entry (5
    up to LLVM 19, 9 from 20); `runtime_symbols` are those it leaves to the host runtime; `fatbins`
    are NVIDIA's, which the linker wrapper or nvcc put there; `finished_images` are those that
    `clang -r --offload-link` has linked already.
    """

    path: Path
    member: str
    is_relocatable: bool
    images: tuple[PackagedImage, ...]
    entries: tuple[RegisteredSymbol, ...]
    entry_arrays: tuple[tuple[str, int], ...]
    runtime_symbols: frozenset[str]
    fatbins: tuple[bytes, ...]
    finished_images: tuple[PackagedImage, ...] = ()

    @property
    def location(self) -> str:
        """Return the file, with the member in brackets as linkers print it."""
        return f"{self.path}({self.member})" if self.member else str(self.path)

    @property
    def kinds(self) -> frozenset[str]:
        """Return the offload kinds of the images and of the entries."""
        packaged = {image.kind for image in self.images}
        return frozenset(packaged | {entry.kind for entry in self.entries})

    def kernels(self, kind: str) -> tuple[str, ...]:
        """Return the kernels registered for a kind."""
        return tuple(entry.name for entry in self.entries if entry.kind == kind and entry.is_kernel)


def read_objects(path: Path) -> tuple[ObjectContents, ...]:
    """Read an object, a library or a linked file; another kind of file yields nothing.

    Members without any offloading are left out. Raises InputOutputError where the file cannot be
    read, VerificationError where it is damaged.
    """
    try:
        data = path.read_bytes()
        return tuple(_contents(data, path))
    except OSError as error:
        msg = f"cannot read {error.filename or path}: {error.strerror}"
        raise InputOutputError(msg, location=str(path)) from error


def _contents(data: bytes, path: Path) -> Iterator[ObjectContents]:
    members = iterate_members(data, path) if is_archive(data) else (("", data),)
    for name, content in members:
        if content[:4] != ELF_MAGIC or not any(word in content for word in _WORDS):
            continue
        contents = _read_elf(content, path, name)
        if contents.images or contents.entries or contents.runtime_symbols or contents.fatbins:
            yield contents


def _read_elf(data: bytes, path: Path, member: str) -> ObjectContents:
    location = f"{path}({member})" if member else str(path)
    elf = parse_elf(data, location=location)
    entries: list[RegisteredSymbol] = []
    arrays: list[tuple[str, int]] = []
    for section in elf.sections:
        found = _entry_kind(section)
        if found is not None and section.data:
            kind, layouts = found
            layout, read = _read_entries(elf, section, kind, layouts)
            arrays.append((section.name, len(layout.fields)))
            entries += read
    return ObjectContents(
        path=path,
        member=member,
        is_relocatable=elf.is_relocatable,
        images=_images(elf, OFFLOAD_SECTION),
        entries=tuple(entries),
        entry_arrays=tuple(dict.fromkeys(arrays)),
        runtime_symbols=_runtime_symbols(elf),
        fatbins=tuple(section.data for section in elf.named(FATBIN_SECTION)),
        finished_images=_images(elf, _FINISHED_SECTION),
    )


def _images(elf: ElfFile, section: str) -> tuple[PackagedImage, ...]:
    data = b"".join(item.data for item in elf.named(section))
    return parse_binary(data, location=elf.location)


def _entry_kind(section: ElfSection) -> tuple[str, list[EntryLayout]] | None:
    """Return the kind that the section's name tells (empty: each entry tells) and its layouts.

    `clang -r --offload-link` adds a suffix to the name, so that no second link registers again.
    """
    if section.type != "SHT_PROGBITS":
        return None
    kind = ""
    layouts = []
    for layout in entry_layouts():
        for name, base in layout.sections:
            if section.name == base or section.name.startswith(f"{base}_"):
                kind = "" if len({other for _, other in layout.sections}) == 1 else name
                layouts.append(layout)
                break
    return (kind, layouts) if layouts else None


def _read_entries(
    elf: ElfFile, section: ElfSection, kind: str, layouts: list[EntryLayout]
) -> tuple[EntryLayout, list[RegisteredSymbol]]:
    pointers = elf.pointers(section)
    is_finished = section.name not in {base for item in layouts for _, base in item.sections}
    # Entries of 9 members start with a zero, those of 5 with an address.
    starts_with_address = 0 in pointers or section.data[:8] != bytes(8)
    layout = next(
        (item for item in layouts if (item.fields[0].name == "address") == starts_with_address),
        layouts[0],
    )
    entries = []
    for start in range(0, len(section.data) - layout.size_bytes + 1, layout.size_bytes):
        name_at = start + _offset(layout, "name")
        in_place = int.from_bytes(section.data[name_at : name_at + 8], "little")
        name = elf.text_of(pointers.get(name_at, (-1, in_place)))
        if name:
            size = _number(section.data, layout, start, "size")
            own_kind = kind or _kind_name(_number(section.data, layout, start, "kind"))
            entries.append(RegisteredSymbol(own_kind, name, size, is_finished))
    return layout, entries


def _offset(layout: EntryLayout, name: str) -> int:
    return next(field.offset for field in layout.fields if field.name == name)


def _number(data: bytes, layout: EntryLayout, start: int, name: str) -> int:
    field = next(field for field in layout.fields if field.name == name)
    begin = start + field.offset
    return int.from_bytes(data[begin : begin + field.size_bytes], "little")


def _kind_name(code: int) -> str:
    return dict(kind_names()).get(code, f"kind-{code}")


def _runtime_symbols(elf: ElfFile) -> frozenset[str]:
    table = ".symtab" if elf.is_relocatable else ".dynsym"
    return frozenset(
        symbol.name
        for symbol in elf.symbols(table)
        if symbol.section == 0 and symbol.name.startswith(_RUNTIME_PREFIXES)
    )
