"""Write offload binaries of version 1, byte for byte as clang-offload-packager of each release does."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mlir_offload.offload.abi import OffloadAbi
from mlir_offload.offload.image import ImageKind, is_bitcode
from mlir_offload.offload.string_order import written_order
from mlir_offload.toolchain.byte_view import ByteView

MAGIC = b"\x10\xff\x10\xad"
ALIGNMENT = 8

# Magic, version, size, offset of the entries, and: size of an entry (1), count of entries (2, 3).
HEADER = struct.Struct("<4sIQQQ")
# What version 3 adds to it: the size once decompressed, 0 where the rest is not compressed.
INFLATED_SIZE = struct.Struct("<Q")
# Image kind, offload kind, flags, offset and count of the string entries, offset and size of the image.
ENTRY = struct.Struct("<HHIQQQQ")
# Offset of the key and of the value; from version 2 the size of the value, which may hold NUL bytes.
STRING_ENTRY_V1 = struct.Struct("<QQ")
STRING_ENTRY = struct.Struct("<QQQ")
# Every reader up to LLVM 24 takes it.
_VERSION = 1
_FLAGS = 0
_ARCH = b"arch"
_OTHER_DEVICES = ("nvptx", "amdgcn", "spirv")


def aligned(offset: int) -> int:
    """Return the first aligned offset from this one on."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class ImageArgument(Struct, frozen=True):
    """The keys and values of one `--image=`, in its order; a repeated key has its values joined."""

    pairs: tuple[tuple[bytes, bytes], ...]

    def value(self, key: str) -> str:
        """Return the value of a key, empty where it is not given."""
        return os.fsdecode(dict(self.pairs).get(os.fsencode(key), b""))

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files: each becomes an image with the same strings."""
        joined = self.value("file")
        return tuple(joined.split(",")) if joined else ()

    def strings(self, abi: OffloadAbi) -> tuple[tuple[bytes, bytes], ...]:
        """Return what the image stores, in the order in which the packager of a release writes it."""
        values = dict(self.pairs)
        is_for_cpu = not self.value("triple").startswith(_OTHER_DEVICES)
        if is_for_cpu and values.get(_ARCH) == b"":
            values[_ARCH] = abi.host_arch.encode()
        order = written_order(tuple(values), abi.string_containers)
        return tuple((key, values[key]) for key in order)


class ImageRecord(Struct, frozen=True):
    """An image with all that is stored next to it, numbers as the consumer's release has them."""

    kind_code: int
    image_kind: int
    strings: tuple[tuple[bytes, bytes], ...]
    content: ByteView


def image_argument(words: Iterable[str]) -> ImageArgument:
    """Return the argument whose `key=value` words these are."""
    values: dict[bytes, bytes] = {}
    for word in words:
        key, _, value = os.fsencode(word).partition(b"=")
        values[key] = values[key] + b"," + value if key in values else value
    return ImageArgument(tuple(values.items()))


def packaged_image_kind(name: str, head: bytes, abi: OffloadAbi) -> int:
    """Return the image kind that the packager of a release writes for a file of that name.

    It looks at the ending, except that bitcode is known by its content.
    """
    if is_bitcode(head):
        return ImageKind.BITCODE
    _, _, ending = name.rpartition("/")[2].rpartition(".")
    return dict(abi.image_kinds_by_ending).get(ending, ImageKind.NONE)


def record_parts(record: ImageRecord) -> Iterator[bytes | ByteView]:
    """Return the container of one image in pieces; the image is the view, not copied."""
    strings, table = record.strings, string_table(text for pair in record.strings for text in pair)
    strings_at = HEADER.size + ENTRY.size
    table_at = strings_at + STRING_ENTRY_V1.size * len(strings)
    image_at = aligned(table_at + len(table.content))
    image_size = record.content.size
    size = aligned(image_at + image_size)
    yield b"".join(
        (
            HEADER.pack(MAGIC, _VERSION, size, HEADER.size, ENTRY.size),
            ENTRY.pack(
                record.image_kind,
                record.kind_code,
                _FLAGS,
                strings_at,
                len(strings),
                image_at,
                image_size,
            ),
            *(
                STRING_ENTRY_V1.pack(*(table_at + table.offsets[text] for text in pair))
                for pair in strings
            ),
            table.content.ljust(image_at - table_at, b"\0"),
        )
    )
    yield record.content
    yield bytes(size - image_at - image_size)


class StringTable(Struct, frozen=True):
    """NUL-terminated strings, and where each of them starts."""

    content: bytes
    offsets: dict[bytes, int]


def string_table(strings: Iterable[bytes]) -> StringTable:
    """Return the table as `llvm::StringTableBuilder` (ELF) lays it out.

    A string that ends another one shares its bytes.
    """
    unique = sorted({text for text in strings if text}, key=_reversed, reverse=True)
    content = bytearray(b"\0")
    offsets = {b"": 0}
    previous = b""
    for text in unique:
        if previous.endswith(text):
            offsets[text] = len(content) - len(text) - 1
            continue
        offsets[text] = len(content)
        content += text + b"\0"
        previous = text
    return StringTable(bytes(content), offsets)


def _reversed(text: bytes) -> bytes:
    return text[::-1]
