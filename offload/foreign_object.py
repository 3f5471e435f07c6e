"""Read the sections of host files for Windows and macOS: PE/COFF and Mach-O.

Only headers are read. The layouts are those of Microsoft's "PE Format" and <mach-o/loader.h>, <mach-o/fat.h>.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from mlir_offload.toolchain.byte_view import ByteView

_PE_SIGNATURE = b"PE\0\0"
_PE_OFFSET = struct.Struct("<I")
_PE_OFFSET_AT = 0x3C
# Machine, sections, time, symbol table, symbols, size of the optional header, characteristics.
_COFF = struct.Struct("<HHIIIHH")
_COFF_SYMBOL_BYTES = 18
# Two signatures, version, machine, time, class, four sizes; sections, symbol table, symbols.
_BIG_COFF = struct.Struct("<HHHHI16s16xIII")
_BIG_COFF_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
_BIG_COFF_SYMBOL_BYTES = 20
_ANONYMOUS = b"\0\0\xff\xff"
# Name, virtual size, address, size, offset, relocations, line numbers, characteristics.
_COFF_SECTION = struct.Struct("<8sIIII12xI")
_UNINITIALIZED = 0x80
_IS_LIBRARY = 0x2000
_COFF_MACHINES = {
    0x14C: "x86",
    0x8664: "x86-64",
    0xAA64: "AArch64",
    0xA641: "ARM64EC",
    0x1C4: "Arm",
}
_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

_THIN_MAGICS = {
    b"\xce\xfa\xed\xfe": ("<", 28),
    b"\xcf\xfa\xed\xfe": ("<", 32),
    b"\xfe\xed\xfa\xce": (">", 28),
    b"\xfe\xed\xfa\xcf": (">", 32),
}
_FAT_MAGICS = {b"\xca\xfe\xba\xbe": ">IIIII", b"\xca\xfe\xba\xbf": ">IIQQII"}
# Java class files have the same magic; their version, in place of the number of slices, is at least 45.
_MOST_SLICES = 44
# LC_SEGMENT and LC_SEGMENT_64: offset of the number of sections, offset of the first section, section header.
_SEGMENTS = {0x1: (48, 56, "16s16sIII24x"), 0x19: (64, 72, "16s16sQQI28x")}
_COMMAND_BYTES = 8
_MACH_TYPES = {1: "object", 2: "executable", 6: "dynamic library", 8: "bundle"}
_MACH_MACHINES = {7: "x86", 0x01000007: "x86-64", 12: "Arm", 0x0100000C: "AArch64"}


class HostSection(NamedTuple):
    """A section of a host file: `offset` and `size` in the file, in bytes; 0 if it has no content there."""

    name: str
    offset: int
    size: int


class HostFile(Struct, frozen=True):
    """The type of a PE/COFF or Mach-O file, and its sections."""

    name: str
    sections: tuple[HostSection, ...]


class Slice(NamedTuple):
    """A Mach-O file in a universal binary."""

    machine: str
    content: ByteView


def is_pe(head: bytes) -> bool:
    """Return whether a file begins with the magic of DOS and Windows programs."""
    return head.startswith(b"MZ")


def is_coff(view: ByteView) -> bool:
    """Return whether a file is a COFF object; it has no magic, so its header must be plausible."""
    head = view.head(_BIG_COFF.size)
    if head.startswith(_ANONYMOUS):
        return head[12:28] == _BIG_COFF_CLASS or head[4:6] == b"\0\0"
    if len(head) < _COFF.size:
        return False
    machine, count, _, table, symbols, optional, _ = _COFF.unpack_from(head)
    sections = _COFF.size + count * _COFF_SECTION.size
    ends = table + symbols * _COFF_SYMBOL_BYTES
    return (
        machine in _COFF_MACHINES
        and optional == 0
        and sections <= view.size
        and (not table or sections <= table <= ends <= view.size)
    )


def is_mach_o(head: bytes) -> bool:
    """Return whether a file begins with the magic of a Mach-O file."""
    return head[:4] in _THIN_MAGICS


def is_universal(head: bytes) -> bool:
    """Return whether a file begins as a universal binary, which contains several Mach-O files."""
    return head[:4] in _FAT_MAGICS and int.from_bytes(head[4:8], "big") <= _MOST_SLICES


def read_pe(view: ByteView) -> HostFile:
    """Read the headers of a program or DLL. Raises VerificationError if they are corrupt."""
    (offset,) = view.unpack(_PE_OFFSET, _PE_OFFSET_AT, "offset of the PE header")
    if view.read(offset, len(_PE_SIGNATURE), "PE signature") != _PE_SIGNATURE:
        raise view.malformed(offset, "PE signature", "not a Windows program")
    fields = view.unpack(_COFF, offset + len(_PE_SIGNATURE), "COFF header")
    machine, count, _, table, symbols, optional, flags = fields
    first = offset + len(_PE_SIGNATURE) + _COFF.size + optional
    kind = "DLL" if flags & _IS_LIBRARY else "executable"
    strings = table + symbols * _COFF_SYMBOL_BYTES if table else 0
    name = f"PE {kind}, {_coff_machine(machine)}"
    return HostFile(name, tuple(_coff_sections(view, first, count, strings, is_image=True)))


def read_coff(view: ByteView) -> HostFile:
    """Read the headers of an object, or of a member of an import library, which has no sections."""
    if view.head(4) != _ANONYMOUS:
        machine, count, _, table, symbols, _, _ = view.unpack(_COFF, 0, "COFF header")
        strings = table + symbols * _COFF_SYMBOL_BYTES if table else 0
        sections = _coff_sections(view, _COFF.size, count, strings, is_image=False)
        return HostFile(f"COFF object, {_coff_machine(machine)}", tuple(sections))
    if view.read(4, 2, "version") == b"\0\0":
        (machine,) = struct.unpack("<H", view.read(6, 2, "machine"))
        return HostFile(f"COFF import, {_coff_machine(machine)}", ())
    fields = view.unpack(_BIG_COFF, 0, "COFF header")
    machine, count, table, symbols = fields[3], *fields[-3:]
    strings = table + symbols * _BIG_COFF_SYMBOL_BYTES if table else 0
    sections = _coff_sections(view, _BIG_COFF.size, count, strings, is_image=False)
    return HostFile(f"COFF object, {_coff_machine(machine)}", tuple(sections))


def read_mach_o(view: ByteView) -> HostFile:
    """Read the load commands of a Mach-O file. Raises VerificationError if they are corrupt."""
    magic = view.read(0, 4, "magic")
    if magic not in _THIN_MAGICS:
        raise view.malformed(0, "magic", "not a Mach-O file")
    order, size = _THIN_MAGICS[magic]
    machine, _, kind, count, bytes_in_all = struct.unpack(
        f"{order}IIIII", view.read(4, 20, "header")
    )
    sections: list[HostSection] = []
    offset, end = size, size + bytes_in_all
    for _ in range(count):
        command, length = struct.unpack(f"{order}II", view.read(offset, 8, "load command"))
        if length < _COMMAND_BYTES or offset + length > end:
            raise view.malformed(offset, "load command", f"its size is {length}")
        if command in _SEGMENTS:
            sections += _segment_sections(view, offset, order, *_SEGMENTS[command])
        offset += length
    what = _MACH_TYPES.get(kind, f"type {kind}")
    return HostFile(f"Mach-O {what}, {_mach_machine(machine)}", tuple(sections))


def universal_slices(view: ByteView) -> Iterator[Slice]:
    """Yield the files in a universal binary. Raises VerificationError if one exceeds it."""
    magic = view.read(0, 4, "magic")
    if magic not in _FAT_MAGICS:
        raise view.malformed(0, "magic", "not a universal binary")
    layout = struct.Struct(_FAT_MAGICS[magic])
    (count,) = struct.unpack(">I", view.read(4, 4, "number of slices"))
    for row in view.table(layout, 8, count, "slices"):
        machine, _, offset, size = row[:4]
        name = _mach_machine(machine)
        yield Slice(name, view.part(offset, size, f"slice {name}"))


def _coff_machine(number: int) -> str:
    return _COFF_MACHINES.get(number, f"machine {number:#x}")


def _mach_machine(number: int) -> str:
    return _MACH_MACHINES.get(number, f"machine {number:#x}")


def _coff_sections(
    view: ByteView, first: int, count: int, strings: int, *, is_image: bool
) -> Iterator[HostSection]:
    for row in view.table(_COFF_SECTION, first, count, "section headers"):
        name, virtual, _, size, offset, flags = row
        # In a linked file, sections are padded to the file alignment.
        used = min(size, virtual) if is_image and virtual else size
        has_bytes = offset and not flags & _UNINITIALIZED
        yield HostSection(
            _coff_name(view, name, strings), offset if has_bytes else 0, used if has_bytes else 0
        )


def _coff_name(view: ByteView, name: bytes, strings: int) -> str:
    """Return the name of a section; long names are in the string table: `/123`, or `//` and base 64."""
    text = name.rstrip(b"\0").decode(errors="replace")
    digits = text.lstrip("/")
    if not strings or not text.startswith("/") or not digits:
        return text
    if text.startswith("//"):
        if not set(digits) <= set(_BASE64):
            return text
        offset = 0
        for digit in digits:
            offset = offset * 64 + _BASE64.index(digit)
    elif digits.isascii() and digits.isdecimal():
        offset = int(digits)
    else:
        return text
    return view.text(strings + offset, "name of a section")


def _segment_sections(
    view: ByteView, offset: int, order: str, count_at: int, first: int, layout: str
) -> Iterator[HostSection]:
    (count,) = struct.unpack(f"{order}I", view.read(offset + count_at, 4, "number of sections"))
    section = struct.Struct(f"{order}{layout}")
    for name, _, _, size, place in view.table(section, offset + first, count, "sections"):
        # A zero-filled section has no content in the file.
        text = name.rstrip(b"\0").decode(errors="replace")
        yield HostSection(text, place, size if place else 0)
