"""Bounded reading of bytes that strangers made, where every access is checked and errors name the place; their hash.

All readers of binary formats read through a ByteView. It opens nothing but the file that it was
given, maps nothing into memory (a file that shrinks meanwhile is an error, not a crash), and copies
only what is asked for.

Short texts are hashed without OpenSSL: loading its library takes longer than a small program is read. The module
`random` of Python's library does the same. Files are hashed with `hashlib`, which is faster.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from mlir_offload.toolchain.errors import InputOutputError, VerificationError

CHUNK_BYTES = 1 << 20
# A file of at most that size is read at once and kept: a link looks at each object dozens of times.
_SMALL_BYTES = 1 << 16


# How often a file may have its own bytes read: a header that names the same bytes a thousand times
# would make the cost quadratic. Each read counts as at least _READ_COST bytes.
_READS_PER_BYTE = 32
_FREE_BYTES = 8 << 20
_READ_COST = 32
_LONGEST_TEXT = 1 << 16
_TEXT_STEP = 256
# The most that Linux copies at once.
_AT_ONCE = 0x7FFFF000
_FIRST_CHUNK_BYTES = 64


class ByteSource(Protocol):
    """Where the bytes come from; `content` is all of them if they are in memory."""

    @property
    def content(self) -> bytes | None:
        """Return all bytes, None where they are not in memory."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer where the source ends."""


class MemorySource(Struct, frozen=True):
    """Bytes that are in memory, such as a decompressed image."""

    content: bytes

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`."""
        return self.content[offset : offset + size]


class FileSource(Struct):
    """A file, read without moving a position: kept open for a while, opened for each read then.

    So what was found in a thousand objects can be kept without a thousand open files. `content` is
    that of a small file.
    """

    path: Path
    identity: tuple[int, ...]
    descriptor: int | None
    content: bytes | None = None

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`.

        Raises InputOutputError where the file is gone, or is another one by now.
        """
        if self.content is not None:
            return self.content[offset : offset + size]
        if self.descriptor is not None:
            return _read_all(self.descriptor, offset, size)
        descriptor, identity = _open(self.path)
        try:
            if identity != self.identity:
                msg = f"{self.path} changed while it was being read"
                raise InputOutputError(msg, hint="start again when nothing writes it")
            return _read_all(descriptor, offset, size)
        finally:
            os.close(descriptor)


class Meter(Struct):
    """How many bytes of a source may still be read."""

    left: int


class ByteView(Struct, frozen=True):
    """`size` bytes of a source from `start`, of the format `form`.

    Offsets are relative to the view; error messages name them relative to the source, which is the
    file where `location` is one.
    """

    source: ByteSource
    start: int
    size: int
    form: str = "file"
    location: str = ""
    meter: Meter | None = None

    def read(self, offset: int, size: int, field: str) -> bytes:
        """Return exactly `size` bytes. Raises VerificationError where they are not all there."""
        # A link reads dozens of pieces of each of its objects: no further calls for the usual case.
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self._unfit(offset, size, field)
        meter = self.meter
        if meter is not None:
            meter.left -= max(_READ_COST, size)
            if meter.left < 0:
                raise self.malformed(offset, field, "the same bytes are named too often")
        content, begin = self.source.content, self.start + offset
        data = (
            self.source.read_at(begin, size) if content is None else content[begin : begin + size]
        )
        if len(data) != size:
            raise self.malformed(offset, field, "the file ends early")
        return data

    def head(self, size: int) -> bytes:
        """Return the first `size` bytes, fewer where there are no more: to tell formats apart."""
        return self.source.read_at(self.start, min(size, self.size))

    def unpack(self, layout: struct.Struct, offset: int, field: str) -> tuple[Any, ...]:
        """Return the members of one structure. Raises VerificationError where it does not fit."""
        return layout.unpack(self.read(offset, layout.size, field))

    def table(
        self, layout: struct.Struct, offset: int, count: int, field: str
    ) -> Iterator[tuple[Any, ...]]:
        """Return `count` structures in a row. Raises VerificationError where they do not fit."""
        return layout.iter_unpack(self.read(offset, layout.size * count, field))

    def text(self, offset: int, field: str, limit: int = _LONGEST_TEXT) -> str:
        """Return the NUL-ended string at an offset.

        Raises VerificationError where it has no end within the view or the limit.
        """
        found = b""
        while len(found) < limit and offset + len(found) < self.size:
            rest = self.size - offset - len(found)
            piece = self.read(offset + len(found), min(_TEXT_STEP, rest), field)
            end = piece.find(b"\0")
            if end >= 0:
                return (found + piece[:end]).decode(errors="replace")
            found += piece
        raise self.malformed(offset, field, "the string has no end")

    def part(
        self, offset: int, size: int, field: str, *, form: str = "", location: str = ""
    ) -> ByteView:
        """Return a view of a part, without a copy. Raises VerificationError where it does not fit."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self._unfit(offset, size, field)
        return ByteView(
            self.source,
            self.start + offset,
            size,
            form or self.form,
            location or self.location,
            self.meter,
        )

    def whole(self) -> bytes:
        """Return all bytes: only for what is small, or must be in one piece."""
        return self.read(0, self.size, "content")

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Return the bytes in pieces, for hashing and copying without holding them all."""
        for offset in range(0, self.size, size):
            yield self.read(offset, min(size, self.size - offset), "content")

    def check(self, offset: int, size: int, field: str) -> None:
        """Raise VerificationError unless `size` bytes from `offset` lie within the view."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self._unfit(offset, size, field)

    def _unfit(self, offset: int, size: int, field: str) -> VerificationError:
        reason = f"{size} bytes do not fit in the {self.size} bytes there are"
        return self.malformed(offset, field, reason)

    def malformed(self, offset: int, field: str, reason: str) -> VerificationError:
        """Return the error that names the format, the field, its offset and what is wrong."""
        msg = f"malformed {self.form}: {field} at offset {self.start + offset}: {reason}"
        return VerificationError(msg, hint="make the file again", location=self.location)


def memory_view(data: bytes, *, form: str = "file", location: str = "") -> ByteView:
    """Return a view of bytes in memory."""
    return ByteView(MemorySource(data), 0, len(data), form, location, _meter(len(data)))


@contextlib.contextmanager
def open_view(path: Path) -> Iterator[ByteView]:
    """Open a file for bounded reading; views stay valid afterwards, but are slower to read.

    Raises InputOutputError for what cannot be opened or is not a regular file: a pipe or a terminal
    would block.
    """
    descriptor, identity = _open(path)
    size = identity[2]
    source = FileSource(path, identity, descriptor)
    try:
        if size <= _SMALL_BYTES:
            source.content = _read_all(descriptor, 0, size)
        yield ByteView(source, 0, size, location=str(path), meter=_meter(size))
    finally:
        source.descriptor = None
        os.close(descriptor)


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, fewer where there are no more. Raises as `open_view`."""
    descriptor, _ = _open(path)
    try:
        return os.pread(descriptor, size, 0)
    finally:
        os.close(descriptor)


def _meter(size: int) -> Meter:
    return Meter(_FREE_BYTES + _READS_PER_BYTE * size)


def _open(path: Path) -> tuple[int, tuple[int, ...]]:
    """Return a descriptor of a regular file, and what tells the file from another of its name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise InputOutputError(msg, hint="check the name and its permissions") from error
    except ValueError as error:
        msg = f"cannot read {str(path)!r}: a file name cannot contain this: {error}"
        raise InputOutputError(msg, hint="check the name") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        msg = f"cannot read {path}: it is not a regular file"
        raise InputOutputError(msg, hint="name a file")
    return descriptor, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _read_all(descriptor: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0:
        part = os.pread(descriptor, size, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def copy_view(view: ByteView, descriptor: int) -> None:
    """Append the bytes of a view to an open file.

    Raises OSError where they cannot be written, VerificationError where they cannot all be read.
    """
    copied = _copied_in_kernel(view, descriptor)
    for chunk in view.part(copied, view.size - copied, "content").chunks():
        write_all(chunk, descriptor)


def write_all(data: bytes, descriptor: int) -> None:
    """Append bytes to an open file. Raises OSError where they cannot be written."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copied_in_kernel(view: ByteView, descriptor: int) -> int:
    """Return how many bytes the kernel copied; what stopped it shows again in an ordinary copy."""
    copied = 0
    source = view.source.descriptor if isinstance(view.source, FileSource) else None
    if source is not None:
        for copy in (_copy_range, _send_file):
            with contextlib.suppress(OSError):
                while copied < view.size:
                    size = min(view.size - copied, _AT_ONCE)
                    moved = copy(source, descriptor, size, view.start + copied)
                    if not moved:
                        break
                    copied += moved
    return copied


def _copy_range(source: int, target: int, size: int, offset: int) -> int:
    return os.copy_file_range(source, target, size, offset_src=offset)


def _send_file(source: int, target: int, size: int, offset: int) -> int:
    return os.sendfile(target, source, offset, size)


def skip_zeros(view: ByteView, offset: int) -> int:
    """Return where the next byte that is not zero lies, or the size of the view.

    It reads pieces that grow, so that short gaps cost little and long ones run at memory speed.
    """
    size = _FIRST_CHUNK_BYTES
    while offset < view.size:
        piece = view.read(offset, min(size, view.size - offset), "padding")
        zeros = len(piece) - len(piece.lstrip(b"\0"))
        offset += zeros
        if zeros < len(piece):
            return offset
        size = min(size * 2, CHUNK_BYTES)
    return offset


# Of Python 3.12 and later, of 3.11, and of any.
_HASHING = ("_sha2", "_sha256", "hashlib")


class Digest(Protocol):
    """What `hashlib.sha256` returns."""

    def update(self, data: bytes, /) -> None:
        """Add content."""

    def digest(self) -> bytes:
        """Return the hash."""

    def hexdigest(self) -> str:
        """Return the hash in hexadecimal."""


def sha256(data: bytes = b"") -> Digest:
    """Return `hashlib.sha256(data)`."""
    return _constructor()(data)


@cache
def _constructor() -> Callable[[bytes], Digest]:
    for name in _HASHING:
        with contextlib.suppress(ImportError):
            found: Callable[[bytes], Digest] = import_module(name).sha256
            return found
    raise ImportError(_HASHING[-1])
