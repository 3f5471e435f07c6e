"""Bounded decompression."""

from __future__ import annotations

import zlib

import zstandard


def inflate_zlib(data: bytes, size: int) -> bytes:
    """Return `size` bytes from a zlib stream. Raises ValueError where it holds fewer or more."""
    try:
        inflated = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        msg = f"the zlib stream is damaged: {error}"
        raise ValueError(msg) from None
    return _checked(inflated, size)


def inflate_zstd(data: bytes, size: int) -> bytes:
    """Return `size` bytes from a Zstandard frame. Raises ValueError where it holds fewer or more."""
    try:
        if zstandard.frame_content_size(data) not in {size, -1}:
            return _checked(b"", size)
        inflated = zstandard.ZstdDecompressor().decompress(data, max_output_size=size + 1)
    except zstandard.ZstdError as error:
        msg = f"the Zstandard frame is damaged: {error}"
        raise ValueError(msg) from None
    return _checked(inflated, size)


def _checked(inflated: bytes, size: int) -> bytes:
    if len(inflated) != size:
        msg = f"the compressed content does not hold {size} bytes"
        raise ValueError(msg)
    return inflated
