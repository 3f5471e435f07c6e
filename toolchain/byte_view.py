"""Bounds-checked reading of untrusted binary data, and SHA-256.

All readers of binary formats read through a ByteView. It does not map files into memory: if a file
shrinks while it is read, the result is an error, not a crash. It copies only the requested bytes.
Errors contain the offset.

`sha256` avoids OpenSSL, because loading its library takes longer than hashing a small program. Python's module
`random` does the same. Files are hashed with `hashlib`, which is faster.
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
# Files up to this size are read once and kept, because a link reads each object dozens of times.
_SMALL_BYTES = 1 << 16


# The limit of bytes read, as a multiple of the file size. Without it, headers that all refer to the
# same bytes would make the cost quadratic. Each read counts as at least _READ_COST bytes.
_READS_PER_BYTE = 32
_FREE_BYTES = 8 << 20
_READ_COST = 32
_LONGEST_TEXT = 1 << 16
_TEXT_STEP = 256
# The most bytes that Linux copies in one call.
_AT_ONCE = 0x7FFFF000
_FIRST_CHUNK_BYTES = 64


class ByteSource(Protocol):
    """Random access to bytes."""

    @property
    def content(self) -> bytes | None:
        """Return all bytes, or None if they are not in memory."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer if the source ends."""


class MemorySource(Struct, frozen=True):
    """Bytes in memory, such as a decompressed image."""

    content: bytes

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`."""
        return self.content[offset : offset + size]


class FileSource(Struct):
    """A file, read with `pread`: through `descriptor` while it is open, otherwise opened for each read.

    Views of a thousand objects therefore do not require a thousand open files. `content` is set for
    small files.
    """

    path: Path
    identity: tuple[int, ...]
    descriptor: int | None
    content: bytes | None = None

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`.

        Raises InputOutputError if the file was removed or replaced.
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
    """The number of bytes of a source that may still be read."""

    left: int


class ByteView(Struct, frozen=True):
    """`size` bytes of a source from `start`; `form` is the format for error messages.

    Offsets are relative to the view. Offsets in error messages are relative to the source, which is
    the file `location` unless that is empty.
    """

    source: ByteSource
    start: int
    size: int
    form: str = "file"
    location: str = ""
    meter: Meter | None = None

    def read(self, offset: int, size: int, field: str) -> bytes:
        """Return exactly `size` bytes. Raises VerificationError if the view is too short."""
        # Inlined for speed: a link calls this dozens of times for each object.
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self._unfit(offset, size, field)
        meter = self.meter
        if meter is not None:
            meter.left -= size if size > _READ_COST else _READ_COST  # noqa: FURB136 (faster than max)
            if meter.left < 0:
                raise self.malformed(offset, field, "the same bytes are named too often")
        source, begin = self.source, self.start + offset
        content = source.content
        data = source.read_at(begin, size) if content is None else content[begin : begin + size]
        if len(data) != size:
            raise self.malformed(offset, field, "the file ends early")
        return data

    def head(self, size: int) -> bytes:
        """Return the first `size` bytes, or all of a shorter view, to identify the format."""
        return self.source.read_at(self.start, min(size, self.size))

    def unpack(self, layout: struct.Struct, offset: int, field: str) -> tuple[Any, ...]:
        """Return the fields of one structure. Raises VerificationError if the view is too short."""
        return layout.unpack(self.read(offset, layout.size, field))

    def table(
        self, layout: struct.Struct, offset: int, count: int, field: str
    ) -> Iterator[tuple[Any, ...]]:
        """Return `count` consecutive structures. Raises VerificationError if the view is too short."""
        return layout.iter_unpack(self.read(offset, layout.size * count, field))

    def text(self, offset: int, field: str, limit: int = _LONGEST_TEXT) -> str:
        """Return the NUL-terminated string at an offset.

        Raises VerificationError if there is no NUL within the view and the limit.
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
        """Return a view of a part, without a copy. Raises VerificationError if the view is too short."""
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
        """Return all bytes. Use `chunks` for large views."""
        return self.read(0, self.size, "content")

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in pieces of `size` bytes, for hashing and copying."""
        for offset in range(0, self.size, size):
            yield self.read(offset, min(size, self.size - offset), "content")

    def check(self, offset: int, size: int, field: str) -> None:
        """Raise VerificationError unless `size` bytes from `offset` are within the view."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self._unfit(offset, size, field)

    def _unfit(self, offset: int, size: int, field: str) -> VerificationError:
        reason = f"{size} bytes do not fit in the {self.size} bytes there are"
        return self.malformed(offset, field, reason)

    def malformed(self, offset: int, field: str, reason: str) -> VerificationError:
        """Return an error with the format, the field, its offset and the reason."""
        msg = f"malformed {self.form}: {field} at offset {self.start + offset}: {reason}"
        return VerificationError(msg, hint="make the file again", location=self.location)


def memory_view(data: bytes, *, form: str = "file", location: str = "") -> ByteView:
    """Return a view of bytes in memory."""
    return ByteView(MemorySource(data), 0, len(data), form, location, _meter(len(data)))


@contextlib.contextmanager
def open_view(path: Path) -> Iterator[ByteView]:
    """Open a file for bounded reading; views stay valid afterwards, but are slower to read.

    Raises InputOutputError if the file cannot be opened or is not a regular file; a pipe or a
    terminal would block.
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
    """Return the first `size` bytes of a file, or all of a shorter one. Raises like `open_view`."""
    descriptor, _ = _open(path)
    try:
        return os.pread(descriptor, size, 0)
    finally:
        os.close(descriptor)


def _meter(size: int) -> Meter:
    return Meter(_FREE_BYTES + _READS_PER_BYTE * size)


def _open(path: Path) -> tuple[int, tuple[int, ...]]:
    """Return a descriptor of a regular file, and the identity of the opened file.

    Raises InputOutputError if it cannot be opened or is not a regular file.
    """
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

    Raises OSError if writing fails, VerificationError if the source is too short.
    """
    copied = _copied_in_kernel(view, descriptor)
    for chunk in view.part(copied, view.size - copied, "content").chunks():
        write_all(chunk, descriptor)


def write_all(data: bytes, descriptor: int) -> None:
    """Append bytes to an open file. Raises OSError if writing fails."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copied_in_kernel(view: ByteView, descriptor: int) -> int:
    """Copy within the kernel, and return the number of copied bytes.

    Ignores errors, because the normal copy of the remaining bytes reports them.
    """
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
    """Return the offset of the next nonzero byte, or the size of the view.

    The size of the pieces that are read doubles: short gaps are cheap, and long gaps take few reads.
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


# The module in Python 3.12 and later, in 3.11, and in builds without either.
_HASHING = ("_sha2", "_sha256", "hashlib")


class Digest(Protocol):
    """The interface of `hashlib.sha256` objects."""

    def update(self, data: bytes, /) -> None:
        """Append data."""

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
