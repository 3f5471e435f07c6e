"""Read offload binaries, LLVM's container of device images, in versions 1, 2 and 3.

For untrusted input: images are not copied, containers inflate to at most `_INFLATION_LIMIT` times the total
size (plus 64 KiB), and the time is linear in the size.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.offload.abi import kind_name
from mlir_offload.offload.container import compression
from mlir_offload.offload.container.packager import (
    ALIGNMENT,
    ENTRY,
    HEADER,
    INFLATED_SIZE,
    MAGIC,
    STRING_ENTRY,
    STRING_ENTRY_V1,
    aligned,
)
from mlir_offload.toolchain import lazy
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.errors import VerificationError

_FORM = "offload binary"
_FIRST_VERSION, _LAST_VERSION = 1, 3
_COMPRESSED_SINCE = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# No compiler output compresses better than this; only decompression bombs do.
_INFLATION_LIMIT = 256
# Strings may share bytes, so their total size may exceed that of the binary, slightly in practice.
_TEXT_LIMIT = 8
_FLOOR = 1 << 16
# Headers and strings are at the start, so the first read contains most of them.
_WINDOW = 1 << 12
_TEXT_CHUNK = 1 << 8
_STRING_COUNT_AT = 16


class PackagedImage(Struct, frozen=True, dict=True):
    """An image in a container; `strings` are the packager's keys and values in their order.

    `kind` is the name of the offload kind, or `kind-N` for an unknown enum value. `content` is a view of the
    image, readable while the file is open. `version` is that of the container, `kind_code` the enum value of
    the kind.
    """

    kind: str
    image_kind: int
    flags: int
    strings: tuple[tuple[str, str], ...]
    content: ByteView
    version: int = 1
    kind_code: int = 0

    @lazy
    def triple(self) -> str:
        """Return the target triple; empty if none is stored."""
        return dict(self.strings).get("triple", "")

    @lazy
    def arch(self) -> str:
        """Return the architecture; empty if none is stored."""
        return dict(self.strings).get("arch", "")

    @property
    def data(self) -> bytes:
        """Return a copy of the image."""
        return self.content.whole()


def read_binary(view: ByteView) -> tuple[PackagedImage, ...]:
    """Read every image of concatenated containers.

    Raises VerificationError, with the offset and the field, for anything but a container of a known version.
    """
    return tuple(iterate_binary(view))


def iterate_binary(view: ByteView) -> Iterator[PackagedImage]:
    """Yield the images of `read_binary` one by one, so that corruption only hides later images."""
    return _iterate(replace(view, form=_FORM))


class _Header(Struct, frozen=True):
    version: int
    size: int
    entries_at: int
    count: int
    inflated_size: int

    @property
    def is_compressed(self) -> bool:
        return self.inflated_size != 0


class _Container(Struct):
    """A container, its first bytes, and how much more may be read from it."""

    view: ByteView
    version: int
    window: bytes
    texts: dict[tuple[int, int | None], str]
    text_left: int
    string_entries_left: int

    def read(self, offset: int, size: int, field: str) -> bytes:
        """Return bytes, from the window if they are in it."""
        self.view.check(offset, size, field)
        if offset + size <= len(self.window):
            return self.window[offset : offset + size]
        return self.view.read(offset, size, field)

    def text(self, offset: int, size: int | None, field: str) -> str:
        """Return the string at an offset, reading it once; without a size it ends at a NUL."""
        found = self.texts.get((offset, size))
        if found is None:
            raw = (
                self._terminated(offset, field)
                if size is None
                else self._sized(offset, size, field)
            )
            self.text_left -= len(raw)
            # The packager accepts any bytes; invalid UTF-8 is escaped.
            found = self.texts[offset, size] = raw.decode(errors="backslashreplace")
        return found

    def _sized(self, offset: int, size: int, field: str) -> bytes:
        self._check_text(offset, size, field)
        return self.read(offset, size, field)

    def _terminated(self, offset: int, field: str) -> bytes:
        end = self.window.find(b"\0", offset) if offset >= 0 else -1
        if 0 <= end - offset <= self.text_left:
            return self.window[offset:end]
        self.view.check(offset, 1, field)
        text = bytearray()
        while True:
            at = offset + len(text)
            if at == self.view.size:
                raise self.view.malformed(offset, field, "the string has no end")
            chunk = self.read(at, min(_TEXT_CHUNK + len(text), self.view.size - at), field)
            end = chunk.find(b"\0")
            text += chunk if end < 0 else chunk[:end]
            self._check_text(offset, len(text), field)
            if end >= 0:
                return bytes(text)

    def _check_text(self, offset: int, size: int, field: str) -> None:
        if size > self.text_left:
            reason = "the strings overlap more than those of any real container"
            raise self.view.malformed(offset, field, reason)


def read_container(view: ByteView) -> tuple[list[PackagedImage], int]:
    """Read the container at the start of a view; return its images and its size. Raises as `read_binary`."""
    view = view.part(0, view.size, "container", form=_FORM)
    header = _read_header(view)
    if header.inflated_size > _FLOOR + _INFLATION_LIMIT * header.size:
        raise _inflates_too_much(view, header, header.size)
    return list(_images(view.part(0, header.size, "size"), header)), header.size


def _iterate(view: ByteView) -> Iterator[PackagedImage]:
    start = 0
    inflatable = _FLOOR + _INFLATION_LIMIT * view.size
    while start < view.size:
        rest = view.part(start, view.size - start, "header")
        header = _read_header(rest)
        inflatable -= header.inflated_size
        if inflatable < 0:
            raise _inflates_too_much(rest, header, view.size)
        yield from _images(rest.part(0, header.size, "size"), header)
        start = aligned(start + header.size)


def _inflates_too_much(view: ByteView, header: _Header, stored: int) -> VerificationError:
    reason = f"{stored} bytes cannot inflate to {header.inflated_size}"
    return view.malformed(HEADER.size, "inflated size", reason)


def _images(view: ByteView, header: _Header) -> Iterator[PackagedImage]:
    if header.is_compressed:
        view = _inflated(view, header)
    container = _Container(
        view,
        header.version,
        window=view.head(_WINDOW),
        texts={},
        text_left=min(_TEXT_LIMIT * view.size, _FLOOR + view.size),
        string_entries_left=view.size // STRING_ENTRY_V1.size,
    )
    entries = container.read(header.entries_at, ENTRY.size * header.count, "entry")
    for index, fields in enumerate(ENTRY.iter_unpack(entries)):
        yield _read_image(container, fields, header.entries_at + index * ENTRY.size)


def _read_header(view: ByteView) -> _Header:
    magic, version, size, entries_at, last = view.unpack(HEADER, 0, "header")
    if magic != MAGIC:
        raise view.malformed(0, "magic", f"found {magic.hex()}, expected {MAGIC.hex()}")
    if not _FIRST_VERSION <= version <= _LAST_VERSION:
        known = f"{_FIRST_VERSION} to {_LAST_VERSION}"
        error = view.malformed(4, "version", f"version {version} is not supported, only {known}")
        error.hint = "use a release of mlir-offload that knows the LLVM that wrote it"
        raise error
    inflated_size = 0
    least = HEADER.size
    if version >= _COMPRESSED_SINCE:
        (inflated_size,) = view.unpack(INFLATED_SIZE, HEADER.size, "inflated size")
        least += INFLATED_SIZE.size
    if not least <= size <= view.size or (not inflated_size and size % ALIGNMENT):
        raise view.malformed(8, "size", f"{size} is not a valid container size")
    if version == 1:
        if last != ENTRY.size:
            raise view.malformed(24, "entry size", f"found {last}, expected {ENTRY.size}")
        return _Header(version, size, entries_at, 1, 0)
    return _Header(version, size, entries_at, last, inflated_size)


def _inflated(view: ByteView, header: _Header) -> ByteView:
    """Return the container with everything after its header decompressed, at unchanged offsets."""
    stored = header.size - header.entries_at
    size = header.inflated_size - header.entries_at
    if header.entries_at < HEADER.size + INFLATED_SIZE.size or stored < 0:
        raise view.malformed(16, "entries offset", f"{header.entries_at} is not after the header")
    if size < 0:
        reason = f"{header.inflated_size} is less than the header"
        raise view.malformed(HEADER.size, "inflated size", reason)
    body = view.read(header.entries_at, stored, "compressed content")
    method = "zstd" if body[:4] == _ZSTD_MAGIC else "zlib"
    try:
        inflated = compression.inflate(method, body, size)
    except ValueError as error:
        raise view.malformed(header.entries_at, "compressed content", str(error)) from error
    front = view.read(0, header.entries_at, "header")
    return memory_view(front + inflated, form=f"{_FORM}, decompressed", location=view.location)


def _read_image(container: _Container, fields: tuple[int, ...], entry_at: int) -> PackagedImage:
    image_kind, kind, flags, strings_at, count, image_at, image_size = fields
    if count > container.string_entries_left:
        reason = f"{count} string entries do not fit in the container"
        raise container.view.malformed(entry_at + _STRING_COUNT_AT, "string count", reason)
    container.string_entries_left -= count
    return PackagedImage(
        kind=kind_name(kind) if kind else "none",
        image_kind=image_kind,
        flags=flags,
        strings=tuple(_strings(container, strings_at, count)),
        content=container.view.part(image_at, image_size, "image", form="device image"),
        version=container.version,
        kind_code=kind,
    )


def _strings(container: _Container, offset: int, count: int) -> Iterator[tuple[str, str]]:
    layout = STRING_ENTRY_V1 if container.version == 1 else STRING_ENTRY
    rows = container.read(offset, layout.size * count, "string entries")
    for key_at, value_at, *size in layout.iter_unpack(rows):
        key = container.text(key_at, None, "string key")
        yield key, container.text(value_at, size[0] if size else None, "string value")
