"""Offload entries, which register the kernels and device globals of a host module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from itertools import repeat
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.abi import EntryLayout, entry_layouts, kind_names
from mlir_offload.offload.host import object_entry
from mlir_offload.offload.ir_syntax import (
    escape_bytes,
    extend_used_list,
    global_name,
    next_metadata_number,
    target_triple,
)
from mlir_offload.offload.kind_format import check_kinds, format_of
from mlir_offload.toolchain.errors import CompatibilityError, SourceError
from mlir_offload.toolchain.target import Kind, device_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlir_offload.offload.abi import OffloadAbi

_COFF_SUFFIX = "$"
_ENTRY_VERSION = 1
# Prefixes of components of triples.
_APPLE = ("apple", "darwin", "macos", "ios", "tvos", "watchos", "visionos", "driverkit")
_WINDOWS = ("windows", "win32", "cygwin", "uefi")


def elf_name_of(section: str) -> str:
    """Return the name of a section without the suffix that sorts it on COFF."""
    return section.partition(_COFF_SUFFIX)[0]


def layout_of(section: str, members: int) -> EntryLayout | None:
    """Return the entry layout of a section with that many fields; None if there is none."""
    found = (
        layout
        for layout in entry_layouts()
        if len(layout.fields) == members and section in dict(layout.sections).values()
    )
    return next(found, None)


def entry_of(
    layout: EntryLayout, section: str, members: Iterable[tuple[str, int, str]]
) -> object_entry.HostEntry:
    """Return the entry with these fields, each a name, a number, and the string that it points to."""
    numbers: dict[str, int] = {}
    name = ""
    for member, number, string in members:
        numbers[member] = number
        name = string if member == "name" else name
    kind = dict(kind_names()).get(numbers.get("kind", 0), "")
    own = (kind for kind, base in layout.sections if base == section)
    return object_entry.HostEntry(
        kind=kind or next(own, ""),
        name=name,
        size_bytes=numbers["size"],
        flags=numbers["flags"],
        data=numbers["data"],
        section=section,
        fields=len(layout.fields),
    )


class EntryType(StrEnum):
    """The type of an entry (`OffloadEntryKindFlag` in `llvm/Frontend/Offloading/Utility.h`).

    LINK is a global of kind openmp that is mapped on use (`declare target link`).
    """

    KERNEL = "kernel"
    GLOBAL = "global"
    MANAGED = "managed"
    SURFACE = "surface"
    TEXTURE = "texture"
    LINK = "link"


class OffloadEntry(Struct, frozen=True):
    """A kernel or device global of one kind: its device symbol, and the host symbol that identifies it.

    `address` is a kernel's stub or handle, or a global's shadow on the host. For a managed variable it is the
    initial value, `auxiliary` is the pointer that the host uses, and `data` is the alignment. For a surface
    or texture, `data` is its type (the number of dimensions). The entry `is_local` if an entry of that name
    in another file may refer to something else.
    """

    kind: Kind
    name: str
    address: str
    type: EntryType = EntryType.KERNEL
    size_bytes: int = 0
    is_extern: bool = False
    is_constant: bool = False
    is_normalized: bool = False
    data: int = 0
    auxiliary: str = ""
    is_local: bool = False


class EntryPlace(Struct, frozen=True):
    """The symbols of an entry and of its name string, and its section."""

    symbol: str
    name_symbol: str
    section: str


def entry_section(kind: Kind, abi: OffloadAbi, triple: str = "") -> str:
    """Return the section for the entries of a kind on a host (no triple: ELF).

    Raises CompatibilityError if the release registers nothing for such a host or kind.
    """
    section = dict(abi.entry.sections).get(device_kind(kind).offload_kind)
    if section is None:
        msg = f"LLVM {abi.major} has no entries of kind {kind}"
        raise CompatibilityError(msg, hint="link with a newer release of LLVM")
    _, *parts = triple.split("-")
    if triple.endswith("-macho") or any(part.startswith(_APPLE) for part in parts):
        msg = f"LLVM cannot register device code on {triple}: Mach-O has no section named {section}"
        raise CompatibilityError(msg, hint="compile for a host with ELF or COFF objects")
    if triple.endswith("-elf") or not any(part.startswith(_WINDOWS) for part in parts):
        return section
    suffix = abi.entry_values.coff_suffix
    if suffix is None:
        msg = f"the linker wrapper of LLVM {abi.major} registers no device code on {triple}"
        raise CompatibilityError(msg, hint="link with a newer release of LLVM")
    return section + suffix


def check_entry(entry: OffloadEntry, abi: OffloadAbi) -> None:
    """Raise an error for an entry that the linker wrapper of the release would misread or drop."""
    if (entry.type is EntryType.KERNEL) != (entry.size_bytes == 0):
        msg = f"{entry.type} '{entry.name}' has size {entry.size_bytes}: size 0 marks a kernel"
        raise SourceError(msg, hint="give every device global its size in bytes, and no kernel one")
    if (device_kind(entry.kind).offload_kind, entry.type.value) not in abi.entry_values.registered:
        what = f"entry of type {entry.type} and kind {entry.kind}"
        msg = f"the linker wrapper of LLVM {abi.major} registers no {what}: '{entry.name}' would be dropped"
        raise CompatibilityError(msg, hint="use a plain device global")
    if entry.type is EntryType.MANAGED and not entry.auxiliary:
        msg = f"managed variable '{entry.name}' has no pointer that the host uses"
        raise SourceError(msg, hint="name the symbol of that pointer too")


def render_entry(entry: OffloadEntry, abi: OffloadAbi, place: EntryPlace) -> str:
    """Return the IR of an entry and of its name string."""
    layout = abi.entry
    values = _members(entry, abi) | {"name": global_name(place.name_symbol)}
    types = ", ".join(field.type for field in layout.fields)
    members = ", ".join(
        f"{field.type} {values.get(field.name) or _zero(field.type)}" for field in layout.fields
    )
    text = entry.name.encode(errors="surrogateescape") + b"\0"
    # Weak like clang's, so that LTO keeps one entry of a variable or kernel that several files define. A
    # local entry registers the stub of its own file, in addition to those of other files' kernels of that
    # name.
    linkage = "internal" if entry.is_local else "weak"
    placed = f', section "{layout.name_section}", align 1' if layout.name_section else ""
    return (
        f"{global_name(place.name_symbol)} = internal unnamed_addr constant [{len(text)} x i8] "
        f'c"{escape_bytes(text)}"{placed}\n'
        f"{global_name(place.symbol)} = {linkage} constant {{ {types} }} "
        f'{{ {members} }}, section "{place.section}", align {layout.align}\n'
    )


def _zero(type_name: str) -> str:
    return "null" if type_name == "ptr" else "0"


def _members(entry: OffloadEntry, abi: OffloadAbi) -> dict[str, str]:
    values = abi.entry_values
    members = {
        "version": str(_ENTRY_VERSION),
        "kind": str(abi.kind_code(entry.kind)),
        "flags": str(_flags(entry, abi)),
        "address": global_name(entry.address),
        "size": str(entry.size_bytes),
        "auxiliary": "null",
    }
    if entry.type is EntryType.MANAGED:
        sources = {
            "address": global_name(entry.address),
            "auxiliary": global_name(entry.auxiliary),
            "data": str(entry.data),
        }
        members |= {member: sources[source] for member, source in values.managed_members}
    elif values.has_type_in_data and entry.type in {EntryType.SURFACE, EntryType.TEXTURE}:
        members["data"] = str(entry.data)
    return members


def _flags(entry: OffloadEntry, abi: OffloadAbi) -> int:
    values = abi.entry_values
    qualifiers = {
        "extern": entry.is_extern,
        "constant": entry.is_constant,
        "normalized": entry.is_normalized,
    }
    flags = values.flag(entry.type.value)
    for name, is_set in qualifiers.items():
        flags |= values.flag(name) if is_set else 0
    return flags


def register_entries(text: str, entries: Sequence[OffloadEntry], abis: Sequence[OffloadAbi]) -> str:
    """Return the host module with the entries, in the layout of each ABI.

    Raises SourceError for an entry that would be misread, CompatibilityError for one that a release would
    drop, or that cannot be expressed for all releases together.
    """
    check_kinds(sorted({entry.kind for entry in entries}), abis)
    for abi in abis:
        for entry in entries:
            check_entry(entry, abi)
        text = append_entries(text, entries, abi)
    return text


def append_entries(text: str, entries: Sequence[OffloadEntry], abi: OffloadAbi) -> str:
    """Return the host module with the entries as clang of the release emits them, unchecked.

    In contrast to clang's, they are protected from the garbage collection of sections.
    """
    ordered = sorted(entries, key=lambda entry: not format_of(entry.kind).is_registered_first)
    places = _places(ordered, abi, target_triple(text))
    rendered = "".join(map(render_entry, ordered, repeat(abi), places))
    # `llvm.used` sets SHF_GNU_RETAIN; otherwise lld --gc-sections would drop the array, or fail on its
    # bounds.
    text = extend_used_list(text + rendered, "llvm.used", [place.symbol for place in places])
    return _append_symbols(text, places) if abi.entry.has_symbols_metadata else text


def _places(entries: Sequence[OffloadEntry], abi: OffloadAbi, triple: str) -> list[EntryPlace]:
    """Return the symbols and section of each entry; a name that several kinds use gets a symbol for each."""
    layout, counts = abi.entry, Counter(entry.name for entry in entries)
    places = []
    for index, entry in enumerate(entries):
        is_shared = counts[entry.name] > 1 and not format_of(entry.kind).has_plain_entries
        places.append(
            EntryPlace(
                f"{layout.symbol_prefix}{entry.name}{f'.{entry.kind}' if is_shared else ''}",
                f"{layout.name_symbol}.{index}" if index else layout.name_symbol,
                entry_section(entry.kind, abi, triple),
            )
        )
    return places


def _append_symbols(text: str, places: Sequence[EntryPlace]) -> str:
    """List the name strings in `llvm.offloading.symbols`, as clang does from LLVM 20 on."""
    number = next_metadata_number(text)
    nodes = "".join(
        f"!{number + index} = !{{ptr {global_name(place.name_symbol)}}}\n"
        for index, place in enumerate(places)
    )
    listed = ", ".join(f"!{number + index}" for index in range(len(places)))
    return f"{text}!llvm.offloading.symbols = !{{{listed}}}\n{nodes}"
