"""Read the notes of an ELF file (gABI 4.1, "Note Section"), and the comment on what compiled it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from mlir_offload.offload.elf import ElfFile, SectionType
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.version import parse_version

_HEADER = struct.Struct("<III")
_ALIGNMENT = 4
_LONGEST_OWNER = 256
_LONGEST_COMMENT = 1 << 16
_LLVM_COMPILER = re.compile(r"\bclang version\b|\bLLVM\b")


class ElfNote(NamedTuple):
    """One note: who defined its type, the type, what it says."""

    owner: str
    type: int
    content: ByteView


def iterate_notes(elf: ElfFile) -> Iterator[ElfNote]:
    """Return the notes of all note sections in their order.

    Raises VerificationError where one does not fit in its section.
    """
    for section in elf.sections:
        if section.type == SectionType.NOTE:
            yield from _notes_of(elf.content(section, form="ELF note"))


def read_compiler(elf: ElfFile) -> tuple[str, int | None]:
    """Return what compiled an ELF file, as `.comment` says, and its release where it is an LLVM.

    A linked file names every compiler and the linker: the first one of LLVM counts, else the first.
    """
    section = next(iter(elf.named(".comment")), None)
    names = _comments(elf.content(section)) if section else []
    for name in names:
        found = _LLVM_COMPILER.search(name)
        version = parse_version(name[found.end() :]) if found else None
        if version is not None:
            return name, version.major
    return (names[0] if names else ""), None


def _comments(view: ByteView) -> list[str]:
    text = view.head(_LONGEST_COMMENT).decode(errors="replace")
    return [name for name in text.split("\0") if name]


def _notes_of(view: ByteView) -> Iterator[ElfNote]:
    offset = 0
    while offset + _HEADER.size <= view.size:
        owner_size, size, kind = view.unpack(_HEADER, offset, "note header")
        if owner_size > _LONGEST_OWNER:
            raise view.malformed(offset, "note owner", f"it is {owner_size} bytes long")
        owner = view.read(offset + _HEADER.size, owner_size, "note owner")
        start = offset + _HEADER.size + _aligned(owner_size)
        content = view.part(start, size, "note content")
        yield ElfNote(owner.rstrip(b"\0").decode(errors="replace"), kind, content)
        offset = start + _aligned(size)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
