"""Inflate and deflate device images; a claimed size is judged before memory is taken for it.

The libraries are imported where they are used: most calls of the compiler need none of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import UsageError

if TYPE_CHECKING:
    import zstandard

# What a reader lets a file inflate to: this many times its size, and never less than the floor.
# Cubins, code objects and PTX shrink to a half or a tenth, a bundle of one kernel for twenty
# architectures to a fiftieth. Only images that are nearly all zeros shrink further.
LARGEST_RATIO = 256
LEAST_LIMIT_BYTES = 64 << 20
# What the formats can reach at most, so that a few bytes cannot claim the floor: LZ4 adds 255 bytes
# for one, DEFLATE 258 for two bits, and Zstandard 128 KiB for a block of four bytes.
_REACHABLE_RATIOS = {"lz4": 255, "zlib": 1032, "zstd": 1 << 15}
_LEVELS = {"zlib": range(10), "zstd": range(-7, 23)}
# 1 KiB, the format's least window, and 128 MiB, the largest that readers take unasked.
_LEAST_WINDOW_LOG = 10
_LARGEST_WINDOW_LOG = 27
# The largest block whose release makes glibc keep as much as that for the next one.
_KEPT_BYTES = (32 << 20) - (1 << 16)


def inflation_limit(stored_bytes: int) -> int:
    """Return how many bytes a file, or a part of one, of that size may inflate to in all."""
    return max(LEAST_LIMIT_BYTES, LARGEST_RATIO * stored_bytes)


def inflate(method: str, data: bytes, size: int, *, is_padded: bool = False) -> bytes:
    """Return exactly `size` bytes from the stream of a method: `zlib`, `zstd` or `lz4`.

    `is_padded` allows bytes after the stream. Raises ValueError for anything else.
    """
    limit = min(inflation_limit(len(data)), _REACHABLE_RATIOS[method] * len(data))
    if size > limit:
        msg = f"{len(data)} bytes cannot stand for {size}; the limit is {limit}"
        raise ValueError(msg)
    _keep_freed_memory()
    content = _INFLATE[method](data, size, is_padded)
    if len(content) != size:
        msg = f"the {method} stream holds {len(content)} bytes instead of {size}"
        raise ValueError(msg)
    return content


@cache
def _keep_freed_memory() -> None:
    """Have the memory of one image used for the next one.

    glibc gives large blocks back to the system, and the pages of the next block are zeroed one by one. It keeps
    blocks up to the size of the largest that was released (mallopt(3), M_MMAP_THRESHOLD): here one that nothing was
    written to.
    """
    bytes(_KEPT_BYTES)


def deflate(method: str, pieces: Iterable[bytes], size: int, level: int) -> Iterator[bytes]:
    """Return the stream of `size` bytes that come in pieces, in pieces.

    Raises UsageError for a level that the method has not.
    """
    levels = _LEVELS[method]
    if level not in levels:
        msg = f"{method} has no compression level {level}"
        raise UsageError(msg, hint=f"name one from {levels[0]} to {levels[-1]}")
    compressor = zlib.compressobj(level) if method == "zlib" else _zstd_compressor(size, level)
    for piece in pieces:
        if data := compressor.compress(piece):
            yield data
    yield compressor.flush()


def _inflate_zlib(data: bytes, size: int, is_padded: bool) -> bytes:  # noqa: FBT001 (see _INFLATE)
    stream = zlib.decompressobj()
    try:
        # One byte more than there may be, so that the stream's end is seen. Zero would be no limit.
        content = stream.decompress(data, size + 1)
    except zlib.error as error:
        msg = f"damaged zlib stream: {error}"
        raise ValueError(msg) from error
    if len(content) <= size and not stream.eof:
        msg = "the zlib stream ends early"
        raise ValueError(msg)
    if stream.unused_data and not is_padded:
        msg = f"{len(stream.unused_data)} bytes follow the zlib stream"
        raise ValueError(msg)
    return content


def _inflate_zstd(data: bytes, size: int, is_padded: bool) -> bytes:  # noqa: FBT001 (see _INFLATE)
    """Inflate one frame; nothing known writes several, and those are refused as bytes that follow."""
    import zstandard

    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.dict_id:
            msg = f"the Zstandard frame needs the dictionary {frame.dict_id}"
            raise ValueError(msg)
        # The library would trust the frame's own size, whatever the limit is.
        if frame.content_size not in (size, zstandard.CONTENTSIZE_UNKNOWN):
            msg = f"the Zstandard frame holds {frame.content_size} bytes instead of {size}"
            raise ValueError(msg)
        return zstandard.ZstdDecompressor().decompress(
            data, max_output_size=max(size, 1), allow_extra_data=is_padded
        )
    except zstandard.ZstdError as error:
        msg = f"damaged Zstandard frame: {error}"
        raise ValueError(msg) from error


def _inflate_lz4(data: bytes, size: int, _is_padded: bool) -> bytes:  # noqa: FBT001 (see _INFLATE)
    import lz4.block

    try:
        content: bytes = lz4.block.decompress(data, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, OverflowError) as error:
        msg = f"damaged LZ4 block: {error}"
        raise ValueError(msg) from error
    return content


_INFLATE: dict[str, Callable[[bytes, int, bool], bytes]] = {
    "lz4": _inflate_lz4,
    "zlib": _inflate_zlib,
    "zstd": _inflate_zstd,
}


def _zstd_compressor(size: int, level: int) -> zstandard.ZstdCompressionObj:
    """Return a compressor that finds what is equal far apart, as the images of one kernel are."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        level,
        source_size=size,
        enable_ldm=True,
        window_log=min(_LARGEST_WINDOW_LOG, max(_LEAST_WINDOW_LOG, size.bit_length())),
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=size)
