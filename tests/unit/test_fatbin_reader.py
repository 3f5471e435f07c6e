from __future__ import annotations

import struct

import pytest

from mlir_offload.offload.decompress import decompress_lz4, decompress_zstd
from mlir_offload.offload.fatbin import parse_fatbin
from mlir_offload.toolchain.errors import VerificationError

LZ4, ZSTD, SPECIFIC, FAMILY = 0x2000, 0x8000, 0x100000, 0x200000
# `zstd` of 64 times "ab", and an LZ4 block of the same bytes.
ZSTD_FRAME = bytes.fromhex("28b52ffd20804d00001061620100bbd46101")
LZ4_BLOCK = bytes.fromhex("2f6162020066506261626162")
PLAIN = b"ab" * 64


def image(data: bytes, *, kind: int = 2, arch: int = 90, flags: int = 0, size: int = 0) -> bytes:
    padded = data.ljust(-(-len(data) // 8) * 8, b"\0")
    fields = (kind, 0x101, 64, len(padded), len(data) if size else 0, 0, 0, arch, 0, flags, 0, size)
    return struct.pack("<HHIQIIIIQQQQ", *fields) + padded


def fatbin(*images: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(b"".join(images))) + b"".join(images)


def test_images_tell_kind_and_architecture() -> None:
    data = fatbin(image(b"12345678"), image(b"ptx code", kind=1, arch=100))
    assert [(item.kind, item.arch, item.data) for item in parse_fatbin(data)] == [
        ("elf", "sm_90", b"12345678"),
        ("ptx", "sm_100", b"ptx code"),
    ]


@pytest.mark.parametrize(
    ("flags", "arch"), [(0, "sm_90"), (SPECIFIC, "sm_90a"), (FAMILY, "sm_90f")]
)
def test_letters_of_the_architecture_are_flags(flags: int, arch: str) -> None:
    assert parse_fatbin(fatbin(image(b"12345678", flags=flags)))[0].arch == arch


def test_fat_binaries_may_follow_one_another_with_padding() -> None:
    data = fatbin(image(b"12345678")) + bytes(24) + fatbin(image(b"87654321")) + bytes(8)
    assert [item.data for item in parse_fatbin(data)] == [b"12345678", b"87654321"]


@pytest.mark.parametrize(("flags", "stored"), [(LZ4, LZ4_BLOCK), (ZSTD, ZSTD_FRAME)])
def test_compressed_images_are_decompressed(flags: int, stored: bytes) -> None:
    data = fatbin(image(stored, flags=flags, size=len(PLAIN)))
    assert parse_fatbin(data)[0].data == PLAIN


@pytest.mark.parametrize("flags", [LZ4, ZSTD])
def test_damaged_compression_is_refused(flags: int) -> None:
    data = fatbin(image(b"\xff" * 16, flags=flags, size=99))
    with pytest.raises(VerificationError, match="cannot decompress an image"):
        parse_fatbin(data, location="a.out")


def test_no_truncation_escapes_the_reader() -> None:
    data = fatbin(image(b"12345678"), image(b"12345678"))
    for length in range(1, len(data)):
        with pytest.raises(VerificationError, match="damaged fat binary: no "):
            parse_fatbin(data[:length])


def test_an_image_that_ends_after_its_fat_binary_is_refused() -> None:
    data = bytearray(fatbin(image(b"12345678")))
    data[24] = 99
    with pytest.raises(VerificationError, match="no image header at offset 16"):
        parse_fatbin(bytes(data))


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x50hello", b"hello"),
        (b"\x1fa\x01\x00\x00\x50bcdef", b"a" * 20 + b"bcdef"),
        (b"\xf0\x01" + b"x" * 16, b"x" * 16),
        (b"", b""),
    ],
)
def test_lz4_blocks_are_literals_and_matches(block: bytes, text: bytes) -> None:
    assert decompress_lz4(block, len(text)) == text


@pytest.mark.parametrize(
    ("block", "size"), [(b"\x10a\x05\x00", 9), (b"\x10a\x00\x00", 9), (b"\xf0", 1), (b"\x10a", 2)]
)
def test_lz4_damage_is_a_value_error(block: bytes, size: int) -> None:
    with pytest.raises(ValueError, match=r"LZ4|instead of"):
        decompress_lz4(block, size)


@pytest.mark.parametrize("size", [8, 1 << 60])
def test_zstd_damage_is_a_value_error(size: int) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decompress_zstd(b"\0" * 8, size)
