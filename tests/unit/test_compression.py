from __future__ import annotations

import subprocess
import sys
import tracemalloc
import zlib

import lz4.block
import pytest
import zstandard

from mlir_offload.offload.container.compression import (
    LEAST_LIMIT_BYTES,
    deflate,
    inflate,
    inflation_limit,
)
from mlir_offload.toolchain.errors import UsageError

PLAIN = b"the same words again and again, " * 40
STREAMS = {
    "zlib": zlib.compress(PLAIN),
    "zstd": zstandard.ZstdCompressor().compress(PLAIN),
    "lz4": lz4.block.compress(PLAIN, store_size=False),
}


def deflated(method: str, data: bytes, level: int = 3) -> bytes:
    return b"".join(deflate(method, (data,), len(data), level))


@pytest.mark.parametrize("method", STREAMS)
def test_streams_inflate_to_what_went_in(method: str) -> None:
    assert inflate(method, STREAMS[method], len(PLAIN)) == PLAIN


@pytest.mark.parametrize("method", STREAMS)
@pytest.mark.parametrize("size", [0, 1, len(PLAIN) - 1, len(PLAIN) + 1])
def test_another_size_than_the_claimed_one_is_refused(method: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"instead of|damaged|ends early"):
        inflate(method, STREAMS[method], size)


@pytest.mark.parametrize("method", STREAMS)
def test_no_truncated_stream_is_taken(method: str) -> None:
    for end in range(len(STREAMS[method])):
        with pytest.raises(ValueError, match=r"damaged|early|instead of|cannot inflate"):
            inflate(method, STREAMS[method][:end], len(PLAIN))


@pytest.mark.parametrize("method", STREAMS)
def test_bytes_after_a_stream_are_refused(method: str) -> None:
    with pytest.raises(ValueError, match=r"follow|unused data|damaged"):
        inflate(method, STREAMS[method] + b"\0", len(PLAIN))


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_padding_is_taken_where_it_is_expected(method: str) -> None:
    assert inflate(method, STREAMS[method] + bytes(99), len(PLAIN), is_padded=True) == PLAIN


@pytest.mark.parametrize("method", STREAMS)
def test_a_size_that_no_stream_of_that_length_reaches_takes_no_memory(method: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="cannot inflate to"):
        inflate(method, STREAMS[method][:20], 32 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 16


@pytest.mark.parametrize("size", [LEAST_LIMIT_BYTES + 1, 1 << 40, (1 << 64) - 1])
def test_a_bomb_is_refused_by_its_claim(size: int) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(LEAST_LIMIT_BYTES + 1))
    with pytest.raises(ValueError, match=f"the limit is {LEAST_LIMIT_BYTES}"):
        inflate("zstd", bomb, size)


@pytest.mark.parametrize(
    ("method", "bomb"),
    [
        ("zlib", zlib.compress(bytes(8 << 20), 9)),
        ("zstd", zstandard.ZstdCompressor().compress(bytes(8 << 20))),
        ("lz4", lz4.block.compress(bytes(8 << 20), store_size=False)),
    ],
    ids=["zlib", "zstd", "lz4"],
)
def test_a_bomb_that_claims_little_takes_little(method: str, bomb: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"instead of|damaged"):
        inflate(method, bomb, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # zlib keeps the input that it has not consumed.
    assert peak < len(bomb) + (1 << 16)


def test_large_images_may_shrink_a_lot() -> None:
    assert inflation_limit(1 << 20) == 256 << 20
    assert inflation_limit(0) == LEAST_LIMIT_BYTES


def test_a_frame_that_does_not_tell_its_size_is_read() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(PLAIN)
    assert inflate("zstd", frame, len(PLAIN)) == PLAIN
    with pytest.raises(ValueError, match="damaged"):
        inflate("zstd", frame, len(PLAIN) - 1)


def test_several_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="unused data"):
        inflate("zstd", STREAMS["zstd"] * 2, len(PLAIN))
    with pytest.raises(ValueError, match="instead of"):
        inflate("zstd", STREAMS["zstd"] * 2, 2 * len(PLAIN))


def test_a_frame_with_a_dictionary_is_refused() -> None:
    samples: list[bytes | bytearray | memoryview[int]] = [
        b"kernel %d of the device image %d" % (number, number**2) for number in range(500)
    ]
    dictionary = zstandard.train_dictionary(1024, samples)
    frame = zstandard.ZstdCompressor(dict_data=dictionary).compress(PLAIN)
    with pytest.raises(ValueError, match=f"needs the dictionary {dictionary.dict_id()}"):
        inflate("zstd", frame, len(PLAIN))


def test_a_skippable_frame_is_no_image() -> None:
    with pytest.raises(ValueError, match=r"damaged|instead of"):
        inflate("zstd", b"\x50\x2a\x4d\x18\x04\0\0\0abcd", 4)


def test_lz4_refuses_a_size_beyond_its_own_range() -> None:
    with pytest.raises(ValueError, match="damaged LZ4 block"):
        inflate("lz4", bytes(9 << 20), (1 << 31) + 1)


def test_nothing_is_a_stream_too() -> None:
    assert inflate("zlib", zlib.compress(b""), 0) == b""
    assert inflate("zstd", deflated("zstd", b""), 0) == b""
    assert inflate("lz4", b"\0", 0) == b""


@pytest.mark.parametrize("level", [0, 1, 9])
def test_deflated_bytes_inflate(level: int) -> None:
    assert inflate("zlib", deflated("zlib", PLAIN, level), len(PLAIN)) == PLAIN
    assert inflate("zstd", deflated("zstd", PLAIN, level + 1), len(PLAIN)) == PLAIN


def test_pieces_make_one_stream_that_tells_its_size() -> None:
    pieces = [PLAIN[start : start + 100] for start in range(0, len(PLAIN), 100)]
    frame = b"".join(deflate("zstd", pieces, len(PLAIN), 3))
    assert zstandard.frame_content_size(frame) == len(PLAIN)
    assert inflate("zstd", frame, len(PLAIN)) == PLAIN


def test_equal_images_far_apart_cost_once() -> None:
    image = bytes(range(256)) * 4 + zlib.compress(bytes(range(256)) * 99, 9)
    noise = b"".join(zlib.crc32(b"%d" % n).to_bytes(4, "little") for n in range(1 << 20))
    once = deflated("zstd", image + noise)
    assert len(deflated("zstd", image + noise + noise)) < len(once) * 1.01


@pytest.mark.parametrize(("method", "level"), [("zlib", 10), ("zlib", -1), ("zstd", 23)])
def test_a_level_that_the_method_has_not_is_refused(method: str, level: int) -> None:
    with pytest.raises(UsageError, match=f"{method} has no compression level {level}"):
        list(deflate(method, (PLAIN,), len(PLAIN), level))


def test_the_memory_of_an_image_is_used_for_the_next_one() -> None:
    program = """
import lz4.block, resource
from mlir_offload.offload.container.compression import inflate
stored = lz4.block.compress(bytes(4 << 20), store_size=False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    inflate('lz4', stored, 4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    call = (sys.executable, "-c", program)
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    # Each image takes 1,024 pages, and so does the library's copy of it.
    assert int(done.stdout) < 5 * 2 * 1024
