"""Copy from a view to an open file: in the kernel where it can, never all of it through memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from mlir_offload.toolchain.byte_view import ByteView, FileSource

# The most that Linux copies at once.
_AT_ONCE = 0x7FFFF000

# Source, target, size, offset in the source; the number of bytes copied.
_Copy = Callable[[int, int, int, int], int]


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
