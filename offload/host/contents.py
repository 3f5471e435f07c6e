"""Read the offload data in a host ELF file: its sections, images, entries and producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlir_offload.offload.abi import known_majors, load_abi, offload_table, row_of
from mlir_offload.offload.container.bundle import section_image
from mlir_offload.offload.container.contents import Entry, Section
from mlir_offload.offload.container.scan import (
    FoundImage,
    Report,
    bundled,
    file_offset,
    scan_binaries,
    scan_bundles,
    scan_fatbins,
)
from mlir_offload.offload.elf import ElfFile, ElfSection, ElfType, Machine, SectionType
from mlir_offload.offload.host.object_entry import HostEntry
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.tables import table_cache

_COMMENT = ".comment"
_COMMENT_BYTES = 1 << 16
_TYPES = {
    ElfType.RELOCATABLE: "relocatable object",
    ElfType.EXECUTABLE: "executable",
    ElfType.SHARED: "shared object",
}
_MACHINES = {Machine.X86_64: "x86-64", Machine.AARCH64: "AArch64"}
_INTERPRETER = ".interp"
_BINARY_SECTION = ".llvm.offloading"
_FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_BUNDLE_SECTION = ".hip_fatbin"
# The section names of nvcc, clang and hipcc on Windows and macOS, without leading dots and underscores. A
# Windows program keeps only the first eight characters of a name.
_FOREIGN_SCANS: Mapping[str, Callable[[ByteView, Report], Iterator[FoundImage]]] = {
    "nv_fatbin": scan_fatbins,
    "nv_fatb": scan_fatbins,
    "fatbin": scan_fatbins,
    "nv_relfatbin": scan_fatbins,
    "nv_relf": scan_fatbins,
    "hip_fatbin": scan_bundles,
    "hip_fat": scan_bundles,
    "llvm.offloading": scan_binaries,
    "llvm.of": scan_binaries,
    "offloading": scan_binaries,
}
_OTHER_SECTIONS = (".nvFatBinSegment", ".hipFatBinSegment", ".llvm.rodata.offloading")
_TYPE_MASK = 7
_OPENMP = "openmp"


def elf_name(elf: ElfFile) -> str:
    """Return the type of an ELF file and its processor."""
    is_program = elf.type == ElfType.SHARED and bool(elf.named(_INTERPRETER))
    kind = "executable" if is_program else _TYPES.get(elf.type)
    machine = _MACHINES.get(elf.machine)
    return f"ELF {kind or f'type {elf.type}'}, {machine or f'machine {elf.machine}'}"


def producers(elf: ElfFile) -> tuple[str, ...]:
    """Return the distinct programs in `.comment`."""
    found: dict[str, None] = {}
    for section in elf.named(_COMMENT):
        view = elf.content(section)
        text = view.read(0, min(view.size, _COMMENT_BYTES), "section .comment")
        found.update(dict.fromkeys(text.decode(errors="replace").strip("\0").split("\0")))
    return tuple(name for name in found if name)


def offload_sections(elf: ElfFile) -> tuple[Section, ...]:
    """Return the sections with offload data, in order."""
    return tuple(
        Section(
            section.name,
            _section_type(section.type),
            None if section.type == SectionType.NOBITS else _offset_in_file(elf, section),
            section.size,
        )
        for section in elf.sections
        if _concerns_offloading(section)
    )


def section_images(elf: ElfFile, section: ElfSection, report: Report) -> Iterator[FoundImage]:
    """Yield the images in a section; none if it contains something else."""
    if section.type == SectionType.LLVM_OFFLOADING or section.name.startswith(_BINARY_SECTION):
        yield from scan_binaries(elf.content(section), report)
    elif section.name in _FATBIN_SECTIONS:
        yield from scan_fatbins(elf.content(section), report)
    elif section.name == _BUNDLE_SECTION:
        yield from scan_bundles(elf.content(section), report)
    else:
        found = section_image(section.name, elf.content(section))
        # The host part of a bundled object is one zero byte, because the object itself is the host part.
        if found is not None and found.content.size > 1:
            yield bundled(found, None)


def foreign_section_images(name: str, content: ByteView, report: Report) -> Iterator[FoundImage]:
    """Yield the images in a section of a PE/COFF or Mach-O file; none if it contains something else."""
    scan = _FOREIGN_SCANS.get(name.removeprefix(".").lstrip("_"))
    if scan is not None:
        yield from scan(content, report)


def explained(entry: HostEntry) -> Entry:
    """Return an entry with the meaning of its flags and the releases that read it."""
    first, last = layout_releases(entry.section, entry.fields)
    flags = _flag_names(last)
    type_bits = entry.flags & _TYPE_MASK
    what = "kernel" if entry.is_kernel else "variable"
    if type_bits and not entry.is_kernel:
        known = [name for name, bits in flags if bits == type_bits]
        is_link = entry.kind == _OPENMP
        what = next((name for name in known if (name == "link") == is_link), f"type-{type_bits}")
    rest = entry.flags & ~_TYPE_MASK
    named = [(name, bits) for name, bits in flags if bits > _TYPE_MASK and rest & bits == bits]
    unknown = rest & ~sum(bits for _, bits in named)
    return Entry(
        kind=entry.kind,
        name=entry.name,
        what=what,
        size_bytes=entry.size_bytes,
        flags=(*(name for name, _ in named), *((f"{unknown:#x}",) if unknown else ())),
        section=entry.section,
        members=entry.fields,
        first_release=first,
        last_release=last,
        is_device_linked=entry.is_device_linked,
    )


@table_cache
def layout_releases(section: str, members: int) -> tuple[int, int]:
    """Return the first and last LLVM release that reads entries of a section and number of fields; or 0, 0."""
    table = offload_table()
    found = [
        major
        for major in known_majors()
        if _is_of_row(section, members, row_of(table["entries"], major))
    ]
    return (found[0], found[-1]) if found else (0, 0)


def _is_of_row(section: str, members: int, row: Mapping[str, Any]) -> bool:
    names = row["sections"].values()
    is_named = any(section == name or section.startswith(f"{name}_") for name in names)
    return is_named and len(row["fields"]) == members


@table_cache
def _flag_names(major: int) -> tuple[tuple[str, int], ...]:
    return load_abi(major).entry_values.flags if major else ()


def _concerns_offloading(section: ElfSection) -> bool:
    name = section.name
    return (
        section.type == SectionType.LLVM_OFFLOADING
        or name.startswith((_BINARY_SECTION, "__CLANG_OFFLOAD_BUNDLE__"))
        or name in (*_FATBIN_SECTIONS, _BUNDLE_SECTION, *_OTHER_SECTIONS)
        or (section.type == SectionType.PROGBITS and _holds_entries(name))
    )


@table_cache
def _entry_sections() -> frozenset[str]:
    return frozenset(
        name for row in offload_table()["entries"] for name in row["sections"].values()
    )


def _holds_entries(name: str) -> bool:
    return any(name == base or name.startswith(f"{base}_") for base in _entry_sections())


def _offset_in_file(elf: ElfFile, section: ElfSection) -> int | None:
    start = file_offset(elf.view)
    return None if start is None else start + section.offset


def _section_type(number: int) -> str:
    name = next(
        (name for name, value in vars(SectionType).items() if name.isupper() and value == number),
        None,
    )
    return f"SHT_{name}" if name else f"{number:#x}"
