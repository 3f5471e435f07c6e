"""Write offload binaries of versions 2 and 3, which no installed tool writes.

Written from llvm/lib/Object/OffloadBinary.cpp and llvm/include/llvm/Object/OffloadBinary.h of LLVM's
main branch (llvm/llvm-project#169425, #197456, #222774), independently of the code under test.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAGIC = b"\x10\xff\x10\xad"


@dataclass(frozen=True)
class Image:
    """An image to write: its enum values, its strings in order, its content."""

    content: bytes
    strings: tuple[tuple[str, str], ...] = (("arch", "sm_90"), ("triple", "nvptx64-nvidia-cuda"))
    image_kind: int = 2
    offload_kind: int = 2
    flags: int = 0


def pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def write(images: Sequence[Image], version: int) -> bytes:
    """Return the headers of all images, all string entries, one string table, and the images."""
    header_size = 32 if version < 3 else 40
    table, places = b"\0", {"": 0}
    for text in (text for image in images for pair in image.strings for text in pair):
        if text not in places:
            places[text] = len(table)
            table += text.encode() + b"\0"
    strings_at = header_size + 40 * len(images)
    table_at = strings_at + 24 * sum(len(image.strings) for image in images)
    front = len(pad(bytes(table_at) + table))
    entries, strings, image_at = b"", b"", front
    for image in images:
        entries += struct.pack(
            "<HHIQQQQ", image.image_kind, image.offload_kind, image.flags,
            strings_at + len(strings), len(image.strings), image_at, len(image.content),
        )  # fmt: skip
        image_at += len(image.content)
        for key, value in image.strings:
            size = len(value.encode())
            strings += struct.pack("<QQQ", table_at + places[key], table_at + places[value], size)
    body = (entries + strings + table).ljust(front - header_size, b"\0")
    body = body + b"".join(image.content for image in images)
    whole = pad(bytes(header_size) + body)
    header = struct.pack("<4sIQQQ", MAGIC, version, len(whole), header_size, len(images))
    return header.ljust(header_size, b"\0") + whole[header_size:]


def compressed(
    binary: bytes, compress: Callable[[bytes], bytes], inflated_size: int | None = None
) -> bytes:
    """Compress a binary of version 3 after its header; the size in the header excludes padding."""
    body = compress(binary[40:])
    size = len(binary) if inflated_size is None else inflated_size
    header = binary[:8] + struct.pack("<Q", 40 + len(body)) + binary[16:32]
    return pad(header + struct.pack("<Q", size) + body)
