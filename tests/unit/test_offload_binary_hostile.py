"""Malformed offload binaries."""

from __future__ import annotations

import struct
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import (
    assert_bounded,
    bit_flips,
    extreme_fields,
    spliced,
    survives,
    truncations,
)
from support.offload_binary import Image, compressed, write

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import PackagedImage, read_binary
from mlir_offload.offload.container.packager import ImageRecord, image_argument, record_parts
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError


def first_version(*contents: bytes) -> bytes:
    argument = image_argument(["file=", "triple=nvptx64-nvidia-cuda", "arch=sm_90", "kind=cuda"])
    strings = argument.strings(load_abi(22))
    records = [ImageRecord(2, 2, strings, memory_view(content)) for content in contents]
    parts = [part for record in records for part in record_parts(record)]
    return b"".join(part if isinstance(part, bytes) else part.whole() for part in parts)


IMAGES = [Image(b"device code"), Image(b"more", (("symbols", "a\0b"), ("arch", "gfx90a")))]
SAMPLES = {
    "version 1": first_version(b"device code", b""),
    "version 2": write(IMAGES, 2),
    "version 3": write(IMAGES, 3),
    "zlib": compressed(write(IMAGES, 3), zlib.compress),
    "zstd": compressed(write(IMAGES, 3), zstandard.ZstdCompressor().compress),
}
# Python objects for images and strings take at most this many times the bytes of the file.
MULTIPLE = 48


def read(data: bytes) -> tuple[PackagedImage, ...]:
    images = read_binary(memory_view(data))
    for image in images:
        assert image.content.size <= max(len(data), 1 << 16) * 257
    return images


@pytest.mark.parametrize("name", SAMPLES)
def test_truncated_files_are_refused(name: str) -> None:
    data = SAMPLES[name]
    assert read(data)
    whole = struct.unpack_from("<Q", data, 8)[0] if name != "version 1" else len(data)
    # The padding after the last container may be missing, and a file may contain fewer containers.
    ends = {0, *range(whole, len(data))}
    if name == "version 1":
        ends.add(struct.unpack_from("<Q", data, 8)[0])
    assert survives(read, truncations(data)) == len(data) - len(ends)


@pytest.mark.parametrize("name", SAMPLES)
def test_changed_files_are_read_or_refused(name: str) -> None:
    data = SAMPLES[name]
    assert survives(read, bit_flips(data)) > 50
    assert survives(read, extreme_fields(data)) > 50
    survives(read, spliced(data, 2000))


@pytest.mark.parametrize("compress", [zlib.compress, zstandard.ZstdCompressor().compress])
def test_a_bomb_takes_no_more_memory_than_is_promised(compress: object) -> None:
    assert callable(compress)
    binary = write([Image(bytes(64 << 20))], 3)
    for size in (None, len(binary), 256 * 40, 1 << 62):
        bomb = compressed(binary, compress, size)
        with pytest.raises(VerificationError, match=r"inflated size|compressed content"):
            read(bomb)
        assert_bounded(read, bomb, 300)


def test_many_bombs_are_bounded_by_the_size_of_all() -> None:
    bomb = compressed(write([Image(bytes(60_000))], 3), zstandard.ZstdCompressor().compress)
    assert len(read(bomb)) == 1
    with pytest.raises(VerificationError, match="inflated size"):
        read(bomb * 200)
    assert_bounded(read, bomb * 2000, 300)


def test_entries_that_share_one_image_do_not_copy_it() -> None:
    content = bytes(1 << 20)
    binary = bytearray(write([Image(content, ())] + [Image(b"", ())] * 2000, 2))
    first = binary[32:72]
    for index in range(2001):
        binary[32 + 40 * index : 72 + 40 * index] = first
    assert {image.content.size for image in read(bytes(binary))} == {len(content)}
    assert_bounded(read, bytes(binary), MULTIPLE)


def test_strings_that_overlap_are_read_within_a_bound() -> None:
    """Each of many strings begins one byte behind the one before, in one long text."""
    count = 4000
    text = b"x" * (1 << 18)
    image = bytearray(write([Image(b"", tuple((f"{n}", "") for n in range(count)))], 2))
    table_at = len(image)
    image += text + bytes(8)
    image[8:16] = len(image).to_bytes(8, "little")
    for number in range(count):
        struct.pack_into("<Q", image, 72 + 24 * number, table_at + number)
    with pytest.raises(VerificationError, match="the strings overlap more"):
        read(bytes(image))
    assert_bounded(read, bytes(image), MULTIPLE)


@pytest.mark.parametrize("count", [1, 20, 2500])
@pytest.mark.parametrize("text", ["a", "\xff", "\U0001f600"])
def test_strings_of_every_offset_are_bounded(count: int, text: str) -> None:
    """As many strings as fit, each at an offset of its own, in many containers or in a large one."""
    binary = bytearray(write([Image(b"", tuple((f"{n}", text * 40) for n in range(count)))], 2))
    table_at = 72 + 24 * count
    for number in range(count):
        struct.pack_into("<QQ", binary, 72 + 24 * number, *[table_at + 1 + number] * 2)
    assert_bounded(read, bytes(binary) * (2_500 // count), MULTIPLE)


def test_one_table_of_strings_for_all_entries_is_refused() -> None:
    """As many entries as fit, each with as many strings as fit: their product is not read."""
    pairs = tuple((f"key{number}", "value") for number in range(500))
    binary = bytearray(write([Image(b"", pairs)] + [Image(b"", ())] * 999, 2))
    for index in range(1, 1000):
        binary[32 + 40 * index : 72 + 40 * index] = binary[32:72]
    with pytest.raises(VerificationError, match="string count at offset"):
        read(bytes(binary))
    assert_bounded(read, bytes(binary), MULTIPLE)


def test_entries_without_anything_are_bounded() -> None:
    assert_bounded(read, write([Image(b"", ())] * 10_000, 2), MULTIPLE)
    assert_bounded(read, first_version(*[b""] * 1000), MULTIPLE)


# Bytes that a shell can pass, except commas.
KEYS = st.text(st.characters(exclude_characters=",=\0", exclude_categories=["Cs"]), max_size=70)


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.tuples(KEYS, KEYS), max_size=80),
    content=st.binary(max_size=200),
    kind=st.sampled_from(("cuda", "openmp", "hip")),
    image_kind=st.integers(0, 6),
    major=st.integers(15, 23),
)
def test_what_is_written_is_read_again(
    words: list[tuple[str, str]], content: bytes, kind: str, image_kind: int, major: int
) -> None:
    abi = load_abi(major)
    argument = image_argument([f"{key}={value}" for key, value in words])
    strings = argument.strings(abi)
    record = ImageRecord(dict(abi.kind_codes)[kind], image_kind, strings, memory_view(content))
    data = b"".join(
        part if isinstance(part, bytes) else part.whole() for part in record_parts(record)
    )
    assert len(data) % 8 == 0
    first, second = read_binary(memory_view(data * 2))
    assert first.data == second.data == content
    assert (first.kind, first.image_kind, first.flags) == (kind, image_kind, 0)
    assert first.strings == tuple((key.decode(), value.decode()) for key, value in strings)
    assert dict(first.strings).keys() == {key for key, _ in words} - {"file", "kind"}
