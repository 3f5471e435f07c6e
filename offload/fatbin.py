"""Read NVIDIA fat binaries, and the kernels of the cubins inside."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir_offload.offload.decompress import decompress_lz4, decompress_zstd
from mlir_offload.offload.elf import read_elf
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
# kind, version, header size, padded size, compressed size, -, version, arch, -, flags, -, size
_ENTRY = struct.Struct("<HHIQIIIIQQQQ")
_KINDS = {1: "ptx", 2: "elf"}
_FLAG_LZ4 = 0x2000
_FLAG_ZSTD = 0x8000
_SUFFIXES = ((0x100000, "a"), (0x200000, "f"))
_ENTRY_FUNCTION = 0x10  # STO_CUDA_ENTRY


@dataclass(frozen=True, slots=True)
class FatbinImage:
    """One image of a fat binary: `elf` (a cubin) or `ptx`, its architecture, its bytes."""

    kind: str
    arch: str
    data: bytes


def parse_fatbin(data: bytes, *, location: str = "") -> tuple[FatbinImage, ...]:
    """Read the images of a section of fat binaries, decompressed.

    Raises VerificationError where a header is damaged or an image cannot be decompressed.
    """
    return tuple(_iterate(data, location))


def cubin_kernels(cubin: bytes, *, location: str = "") -> frozenset[str]:
    """Return the kernels that a cubin, relocatable or linked, defines."""
    elf = read_elf(memory_view(cubin, location=location))
    return frozenset(
        symbol.name
        for symbol in elf.symbols(".symtab")
        if symbol.is_function and symbol.section > 0 and symbol.other & _ENTRY_FUNCTION
    )


def _iterate(data: bytes, location: str) -> Iterator[FatbinImage]:
    offset = 0
    while (offset := _skip_padding(data, offset)) < len(data):
        if offset + _HEADER.size > len(data):
            raise _damaged(offset, "header", location)
        magic, _, header_size, size = _HEADER.unpack_from(data, offset)
        end = offset + header_size + size
        if magic != _MAGIC or end > len(data) or header_size < _HEADER.size:
            raise _damaged(offset, "header", location)
        yield from _images(data, offset + header_size, end, location)
        offset = end


def _skip_padding(data: bytes, offset: int) -> int:
    """Return where the next word that is not zero starts: linkers align one fat binary after another."""
    while offset < len(data) and not any(data[offset : offset + 8]):
        offset += 8
    return offset


def _images(data: bytes, offset: int, end: int, location: str) -> Iterator[FatbinImage]:
    while offset < end:
        if offset + _ENTRY.size > end:
            raise _damaged(offset, "image header", location)
        fields = _ENTRY.unpack_from(data, offset)
        kind, header_size, padded, compressed = fields[0], fields[2], fields[3], fields[4]
        arch, flags, size = fields[7], fields[9], fields[11]
        start = offset + header_size
        offset = start + padded
        if header_size < _ENTRY.size or offset > end:
            raise _damaged(start - header_size, "image header", location)
        content = _content(data[start:offset], flags, compressed, size, location)
        suffix = "".join(letter for bit, letter in _SUFFIXES if flags & bit)
        yield FatbinImage(_KINDS.get(kind, f"kind-{kind}"), f"sm_{arch}{suffix}", content)


def _content(stored: bytes, flags: int, compressed: int, size: int, location: str) -> bytes:
    try:
        if flags & _FLAG_ZSTD:
            return decompress_zstd(stored[:compressed], size)
        if flags & _FLAG_LZ4:
            return decompress_lz4(stored[:compressed], size)
    except ValueError as error:
        msg = f"cannot decompress an image of the fat binary: {error}"
        raise VerificationError(msg, location=location) from error
    return stored


def _damaged(offset: int, part: str, location: str) -> VerificationError:
    msg = f"damaged fat binary: no {part} at offset {offset}"
    return VerificationError(msg, hint="link again", location=location)
