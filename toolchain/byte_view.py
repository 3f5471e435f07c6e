"""Bounded reading of bytes that strangers made: every access is checked, and errors name the place.

All readers of binary formats read through a ByteView. It opens nothing but the file that it was
given, maps nothing into memory (a file that shrinks meanwhile is an error, not a crash), and copies
only what is asked for.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from mlir_offload.toolchain.errors import InputOutputError, VerificationError

CHUNK_BYTES = 1 << 20


class ByteSource(Protocol):
    """Where the bytes come from."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer where the source ends."""


@dataclass(frozen=True, slots=True)
class MemorySource:
    """Bytes that are in memory, such as a decompressed image."""

    data: bytes

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`."""
        return self.data[offset : offset + size]


@dataclass(frozen=True, slots=True)
class FileSource:
    """An open file, read without moving its position."""

    descriptor: int

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`."""
        parts = []
        while size > 0:
            part = os.pread(self.descriptor, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True, slots=True)
class ByteView:
    """`size` bytes of a source from `start`, of the format `form`.

    Offsets are relative to the view; error messages name them relative to the source, which is the
    file where `location` is one.
    """

    source: ByteSource
    start: int
    size: int
    form: str = "file"
    location: str = ""

    def read(self, offset: int, size: int, field: str) -> bytes:
        """Return exactly `size` bytes. Raises VerificationError where they are not all there."""
        self.check(offset, size, field)
        data = self.source.read_at(self.start + offset, size)
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

    def part(
        self, offset: int, size: int, field: str, *, form: str = "", location: str = ""
    ) -> ByteView:
        """Return a view of a part, without a copy. Raises VerificationError where it does not fit."""
        self.check(offset, size, field)
        return replace(
            self,
            start=self.start + offset,
            size=size,
            form=form or self.form,
            location=location or self.location,
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
            reason = f"{size} bytes do not fit in the {self.size} bytes there are"
            raise self.malformed(offset, field, reason)

    def malformed(self, offset: int, field: str, reason: str) -> VerificationError:
        """Return the error that names the format, the field, its offset and what is wrong."""
        msg = f"malformed {self.form}: {field} at offset {self.start + offset}: {reason}"
        return VerificationError(msg, hint="make the file again", location=self.location)


def memory_view(data: bytes, *, form: str = "file", location: str = "") -> ByteView:
    """Return a view of bytes in memory."""
    return ByteView(MemorySource(data), 0, len(data), form, location)


@contextlib.contextmanager
def open_view(path: Path) -> Iterator[ByteView]:
    """Open a file for bounded reading; views are valid inside the `with` only.

    Raises InputOutputError for what cannot be opened or is no regular file: a pipe or a terminal
    would block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise InputOutputError(msg, hint="check the name and its permissions") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            msg = f"cannot read {path}: it is no regular file"
            raise InputOutputError(msg, hint="name a file")
        yield ByteView(FileSource(descriptor), 0, status.st_size, location=str(path))
    finally:
        os.close(descriptor)
