"""Write and read offload binaries, the container of device images (`llvm/Object/OffloadBinary.h`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir_offload.offload.abi import OffloadAbi, kind_names
from mlir_offload.toolchain.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mlir_offload.offload.image import DeviceImage

MAGIC = b"\x10\xff\x10\xad"
_VERSION = 1
_ALIGNMENT = 8
_HEADER = struct.Struct("<4sIQQQ")
_ENTRY = struct.Struct("<HHIQQQQ")
_STRING = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class PackagedImage:
    """One image as a container holds it; `strings` are the packager's keys in their order.

    `kind` is the offload kind's name, or `kind-N` for a number that no release gives a name.
    """

    kind: str
    image_kind: int
    flags: int
    strings: tuple[tuple[str, str], ...]
    data: bytes

    @property
    def triple(self) -> str:
        """Return the target triple, empty where none is stored."""
        return dict(self.strings).get("triple", "")

    @property
    def arch(self) -> str:
        """Return the architecture, empty where none is stored."""
        return dict(self.strings).get("arch", "")


def serialize_binary(images: Iterable[DeviceImage], abi: OffloadAbi) -> bytes:
    """Return the bytes that the packager of the consumer's release writes for these images."""
    return b"".join(_serialize_image(image, abi) for image in images)


def parse_binary(data: bytes, *, location: str = "") -> tuple[PackagedImage, ...]:
    """Read every image of concatenated containers.

    Raises VerificationError with the offset and the field for anything that is no version 1.
    """
    return tuple(_iterate(data, location))


def string_table(strings: Iterable[str]) -> tuple[bytes, dict[str, int]]:
    """Return the table as `llvm::StringTableBuilder` (ELF) lays it out, and each string's offset.

    A string that ends another one shares its bytes.
    """
    unique = sorted(
        {text.encode() for text in strings if text}, key=lambda raw: raw[::-1], reverse=True
    )
    table = bytearray(b"\0")
    offsets = {"": 0}
    previous = b""
    for raw in unique:
        if previous.endswith(raw):
            offsets[raw.decode()] = len(table) - len(raw) - 1
            continue
        offsets[raw.decode()] = len(table)
        table += raw + b"\0"
        previous = raw
    return bytes(table), offsets


def _serialize_image(image: DeviceImage, abi: OffloadAbi) -> bytes:
    values = image.strings
    strings = [(key, values[key]) for key in abi.string_keys if key in values]
    table, offsets = string_table(text for pair in strings for text in pair)
    strings_at = _HEADER.size + _ENTRY.size
    table_at = strings_at + _STRING.size * len(strings)
    image_at = _aligned(table_at + len(table))
    size = _aligned(image_at + len(image.data))
    parts = (
        _HEADER.pack(MAGIC, abi.container_version, size, _HEADER.size, _ENTRY.size),
        _ENTRY.pack(
            image.image_kind,
            abi.kind_code(image.target.kind),
            0,
            strings_at,
            len(strings),
            image_at,
            len(image.data),
        ),
        *(
            _STRING.pack(table_at + offsets[key], table_at + offsets[value])
            for key, value in strings
        ),
        table.ljust(image_at - table_at, b"\0"),
        image.data.ljust(size - image_at, b"\0"),
    )
    return b"".join(parts)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True, slots=True)
class _Reader:
    """One container within `data`, from `start` to `end`; every access is checked."""

    data: bytes
    start: int
    end: int
    location: str

    def unpack(self, layout: struct.Struct, offset: int, field: str) -> tuple[int, ...]:
        self.check(offset, layout.size, field)
        return layout.unpack_from(self.data, self.start + offset)

    def bytes_at(self, offset: int, size: int, field: str) -> bytes:
        self.check(offset, size, field)
        return self.data[self.start + offset : self.start + offset + size]

    def text_at(self, offset: int, field: str) -> str:
        self.check(offset, 1, field)
        begin = self.start + offset
        stop = self.data.find(b"\0", begin, self.end)
        if stop < 0:
            raise self.malformed(offset, field, "the string has no end")
        try:
            return self.data[begin:stop].decode()
        except UnicodeDecodeError:
            raise self.malformed(offset, field, "the string is not UTF-8") from None

    def check(self, offset: int, size: int, field: str) -> None:
        if offset + size > self.end - self.start:
            raise self.malformed(offset, field, f"{size} bytes do not fit in the container")

    def malformed(self, offset: int, field: str, reason: str) -> VerificationError:
        return _malformed(self.start + offset, field, reason, self.location)


def _iterate(data: bytes, location: str) -> Iterator[PackagedImage]:
    start = 0
    while start < len(data):
        reader = _Reader(data, start, len(data), location)
        size, entry_at = _read_header(reader)
        yield _read_image(_Reader(data, start, start + size, location), entry_at)
        start += size


def _read_header(reader: _Reader) -> tuple[int, int]:
    reader.check(0, _HEADER.size, "header")
    magic, version, size, entry_at, entry_size = _HEADER.unpack_from(reader.data, reader.start)
    if magic != MAGIC:
        raise reader.malformed(0, "magic", f"found {magic.hex()}, expected {MAGIC.hex()}")
    if version != _VERSION:
        raise reader.malformed(4, "version", f"version {version} is not supported, only {_VERSION}")
    if not _HEADER.size <= size <= reader.end - reader.start or size % _ALIGNMENT:
        raise reader.malformed(8, "size", f"{size} is no size of a container here")
    if entry_size != _ENTRY.size:
        raise reader.malformed(24, "entry size", f"found {entry_size}, expected {_ENTRY.size}")
    return size, entry_at


def _read_image(reader: _Reader, entry_at: int) -> PackagedImage:
    image_kind, kind, flags, strings_at, count, image_at, image_size = reader.unpack(
        _ENTRY, entry_at, "entry"
    )
    reader.check(strings_at, count * _STRING.size, "string entries")
    pairs = [
        reader.unpack(_STRING, strings_at + index * _STRING.size, "string entry")
        for index in range(count)
    ]
    return PackagedImage(
        kind=dict(kind_names()).get(kind, f"kind-{kind}" if kind else "none"),
        image_kind=image_kind,
        flags=flags,
        strings=_read_strings(reader, pairs),
        data=reader.bytes_at(image_at, image_size, "image"),
    )


def _read_strings(reader: _Reader, pairs: Sequence[tuple[int, ...]]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (reader.text_at(key, "string key"), reader.text_at(value, "string value"))
        for key, value in pairs
    )


def _malformed(offset: int, field: str, reason: str, location: str) -> VerificationError:
    msg = f"malformed offload binary: {field} at offset {offset}: {reason}"
    hint = "compile the object again; LLVM 23 and newer write containers that this reader does not know"
    return VerificationError(msg, hint=hint, location=location)
