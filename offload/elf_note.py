"""Read the notes of an ELF file (gABI 4.1, "Note Section"), and the compilers named in `.comment`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from msgspec import Struct

from mlir_offload.offload.elf import ElfFile, SectionType
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.pattern import pattern as lazy_pattern

_HEADER = struct.Struct("<III")
_ALIGNMENT = 4
_LONGEST_OWNER = 256
_LONGEST_COMMENT = 1 << 16
_LINKER = "Linker: "
_LLVM_LINKER = lazy_pattern(r"^Linker: .*\bLLD\b")
_RELEASE = lazy_pattern(r"(?<![\w.])\d{1,4}(?!\w)")
_LLVM_COMPILER = lazy_pattern(r"\bclang version\b|\bLLVM\b")


class ElfNote(Struct, frozen=True):
    """A note: the owner that defines its type, the type, and its content."""

    owner: str
    type: int
    content: ByteView


def iterate_notes(elf: ElfFile) -> Iterator[ElfNote]:
    """Yield the notes of all note sections in order.

    Raises VerificationError if one exceeds its section.
    """
    for section in elf.sections:
        if section.type == SectionType.NOTE:
            yield from _notes_of(elf.content(section, form="ELF note"))


def read_compiler(elf: ElfFile) -> tuple[str, int | None]:
    """Return the compiler of an ELF file, from `.comment`, and its major release if it is LLVM.

    A linked file names every compiler and the linker. The first LLVM compiler is returned, otherwise the
    first name.
    """
    names = _comments(elf)
    found = next(_releases(names, _LLVM_COMPILER), None)
    return found or ((names[0] if names else ""), None)


def read_code_generator(elf: ElfFile) -> tuple[str, int | None]:
    """Return the program that generated the code of a file; its linker may have compiled bitcode.

    Device libraries in bitcode leave the names of older compilers in `.comment`. Therefore a compiler is
    returned if it has the release of the linker, otherwise the linker. If no linker is named, the newest
    compiler is returned.
    """
    names = _comments(elf)
    linker = next(_releases(names, _LLVM_LINKER), None)
    compilers = sorted(_releases(names, _LLVM_COMPILER), key=lambda pair: -pair[1])
    if linker is None:
        return compilers[0] if compilers else read_compiler(elf)
    same = (pair for pair in compilers if pair[1] == linker[1])
    return next(same, (linker[0].removeprefix(_LINKER), linker[1]))


def _releases(names: list[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, int]]:
    """Yield the names that contain the pattern followed by a version, with their major release."""
    for name in names:
        found = pattern.search(name)
        release = _RELEASE.search(name, found.end()) if found else None
        if release is not None:
            yield name, int(release[0])


def _comments(elf: ElfFile) -> list[str]:
    section = next(iter(elf.named(".comment")), None)
    if section is None:
        return []
    text = elf.content(section).head(_LONGEST_COMMENT).decode(errors="replace")
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
