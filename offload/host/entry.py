"""Offload entries: what a host module says about its kernels and device globals to the runtimes."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from mlir_offload.offload.host.module import global_name
from mlir_offload.offload.ir_syntax import escape_bytes
from mlir_offload.toolchain.errors import CompatibilityError, SourceError
from mlir_offload.toolchain.target import Kind, device_kind

if TYPE_CHECKING:
    from mlir_offload.offload.abi import OffloadAbi

_ENTRY_VERSION = 1
# What parts of triples begin with.
_APPLE = ("apple", "darwin", "macos", "ios", "tvos", "watchos", "visionos", "driverkit")
_WINDOWS = ("windows", "win32", "cygwin", "uefi")


class EntryType(StrEnum):
    """What an entry represents (`OffloadEntryKindFlag` in `llvm/Frontend/Offloading/Utility.h`).

    LINK is a global of kind openmp that is mapped when it is used (`declare target link`).
    """

    KERNEL = "kernel"
    GLOBAL = "global"
    MANAGED = "managed"
    SURFACE = "surface"
    TEXTURE = "texture"
    LINK = "link"


class OffloadEntry(Struct, frozen=True):
    """A kernel or device global of one kind: its device symbol, and the host symbol it is known by.

    `address` is a kernel's stub or handle, or a global's shadow on the host. For a managed variable
    it is the initial value, `auxiliary` the pointer that the host uses, and `data` the alignment;
    for a surface or texture `data` is its type (the number of dimensions). It `is_local` where an
    entry of that name in another file represents something else.
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
    """The symbols of an entry and of its name string, and the section that it lies in."""

    symbol: str
    name_symbol: str
    section: str


def entry_section(kind: Kind, abi: OffloadAbi, triple: str = "") -> str:
    """Return the section for the entries of a kind on a host (no triple: ELF).

    Raises CompatibilityError where the release registers nothing from such a host or kind.
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
        msg = f"the linker wrapper of LLVM {abi.major} registers no {what}: '{entry.name}' would be lost"
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
    # Weak as clang's, so that LTO keeps one entry of a variable or kernel that several files have. A local
    # one registers the stub of its own file, next to those of kernels of that name in other files.
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
