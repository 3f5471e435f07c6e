"""Inflate and deflate device images; a stored size is checked before memory is allocated for it.

The libraries are imported on use, because most invocations of the compiler need none of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import UsageError

if TYPE_CHECKING:
    import zstandard

# The largest inflation ratio that a reader accepts, and the limit for small files. Cubins, code objects and
# PTX compress to a half or a tenth, a bundle of one kernel for twenty architectures to a fiftieth. Only
# images that are nearly all zeros compress better.
LARGEST_RATIO = 256
LEAST_LIMIT_BYTES = 64 << 20
# The largest ratios that the formats can reach, so that a few bytes cannot claim the limit for small files:
# LZ4 adds 255 bytes per byte, DEFLATE 258 for two bits, and Zstandard 128 KiB for a block of four bytes.
_REACHABLE_RATIOS = {"lz4": 255, "zlib": 1032, "zstd": 1 << 15}
_LEVELS = {"zlib": range(10), "zstd": range(-7, 23)}
# 1 KiB, the format's smallest window, and 128 MiB, the largest that readers accept by default.
_LEAST_WINDOW_LOG = 10
_LARGEST_WINDOW_LOG = 27
# The largest block size for which glibc raises its mmap threshold when the block is freed.
_KEPT_BYTES = (32 << 20) - (1 << 16)


def inflation_limit(stored_bytes: int) -> int:
    """Return how many bytes a file of that size, or a part of one, may inflate to in total."""
    return max(LEAST_LIMIT_BYTES, LARGEST_RATIO * stored_bytes)


def inflate(method: str, data: bytes, size: int, *, is_padded: bool = False) -> bytes:
    """Return exactly `size` bytes from the stream of a method: `zlib`, `zstd` or `lz4`.

    `is_padded` allows bytes after the stream. Raises ValueError if the stream is corrupt or has another size.
    """
    limit = min(inflation_limit(len(data)), _REACHABLE_RATIOS[method] * len(data))
    if size > limit:
        msg = f"{len(data)} bytes cannot inflate to {size}; the limit is {limit}"
        raise ValueError(msg)
    _keep_freed_memory()
    content = _INFLATE[method](data, size, is_padded)
    if len(content) != size:
        msg = f"the {method} stream holds {len(content)} bytes instead of {size}"
        raise ValueError(msg)
    return content


@cache
def _keep_freed_memory() -> None:
    """Make glibc reuse the memory of one image for the next one.

    glibc returns large blocks to the system, and the kernel zeroes the pages of the next block one by one. It
    keeps blocks up to the size of the largest that was freed (mallopt(3), M_MMAP_THRESHOLD); this one is
    never written to.
    """
    bytes(_KEPT_BYTES)


def deflate(method: str, pieces: Iterable[bytes], size: int, level: int) -> Iterator[bytes]:
    """Yield the compressed stream of `size` bytes, which are passed in pieces.

    Raises UsageError if the method does not have the level.
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
        # Ask for one byte more than expected, to detect the end of the stream. Zero would mean no limit.
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
    """Inflate one frame. No known tool writes several; further frames are rejected as trailing bytes."""
    import zstandard

    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.dict_id:
            msg = f"the Zstandard frame needs the dictionary {frame.dict_id}"
            raise ValueError(msg)
        # The library would trust the size in the frame, whatever the limit is.
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
    """Return a compressor that matches over long distances, because the images of a kernel are similar."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        level,
        source_size=size,
        enable_ldm=True,
        window_log=min(_LARGEST_WINDOW_LOG, max(_LEAST_WINDOW_LOG, size.bit_length())),
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=size)
