"""Decompress the images that NVIDIA's fatbinary compresses: LZ4 blocks, Zstandard frames."""

from __future__ import annotations

import ctypes
from functools import cache

_LONG = 15
_MINIMUM_MATCH = 4
_LARGEST_IMAGE_BYTES = 1 << 32
_ZSTD_LIBRARY = "libzstd.so.1"


def decompress_lz4(data: bytes, size: int) -> bytes:
    """Return `size` bytes from an LZ4 block (https://github.com/lz4/lz4, lz4_Block_format.md).

    Raises ValueError where the block is damaged.
    """
    output = bytearray()
    position = 0
    try:
        while position < len(data):
            token = data[position]
            count, position = _length(data, position + 1, token >> 4)
            output += data[position : position + count]
            position += count
            if position >= len(data):
                break
            distance = data[position] | data[position + 1] << 8
            count, position = _length(data, position + 2, token & 0xF)
            _copy(output, distance, count + _MINIMUM_MATCH)
    except IndexError:
        msg = "the LZ4 block ends early"
        raise ValueError(msg) from None
    if len(output) != size:
        msg = f"{len(output)} bytes instead of {size}"
        raise ValueError(msg)
    return bytes(output)


def decompress_zstd(data: bytes, size: int) -> bytes:
    """Return `size` bytes from a Zstandard frame.

    Raises ValueError where the frame is damaged or this machine has no libzstd.
    """
    library = _zstd()
    if size > _LARGEST_IMAGE_BYTES:
        msg = f"damaged size: {size} bytes"
        raise ValueError(msg)
    output = ctypes.create_string_buffer(max(size, 1))
    written = library.ZSTD_decompress(output, size, data, len(data))
    if written != size:
        msg = "the Zstandard frame is damaged"
        raise ValueError(msg)
    return output.raw[:size]


@cache
def _zstd() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_ZSTD_LIBRARY)
    except OSError:
        msg = f"{_ZSTD_LIBRARY} is not installed"
        raise ValueError(msg) from None
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
    )
    return library


def _length(data: bytes, position: int, count: int) -> tuple[int, int]:
    """Return a length and where it ends: a nibble of 15 goes on in bytes, up to one below 255."""
    if count < _LONG:
        return count, position
    while True:
        byte = data[position]
        position += 1
        count += byte
        if byte != 255:  # noqa: PLR2004
            return count, position


def _copy(output: bytearray, distance: int, count: int) -> None:
    """Repeat bytes from `distance` back; the ranges may overlap, which repeats a pattern."""
    if not 0 < distance <= len(output):
        msg = "an LZ4 match starts before the output"
        raise ValueError(msg)
    pattern = output[len(output) - distance :]
    output += (pattern * (count // distance + 1))[:count]
