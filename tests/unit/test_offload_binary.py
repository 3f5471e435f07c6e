from __future__ import annotations

import contextlib
import random

import pytest

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.binary import parse_binary, serialize_binary, string_table
from mlir_offload.offload.image import DeviceImage, ImageKind, image_kind_of, is_bitcode
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.target import Kind, Target

CUDA = Target(Kind.CUDA, "nvptx64-nvidia-cuda", "sm_70")
HOST = Target(Kind.OPENMP, "x86_64-pc-linux-gnu", "host")


def image(target: Target = CUDA, data: bytes = b"i", feature: str = "") -> DeviceImage:
    return DeviceImage(target, data, ImageKind.OBJECT, feature=feature)


# The bytes 0x40 to 0x90 of what the packager of each release writes for the image above.
ARCH_FIRST = "0900000000000000 6900000000000000 8900000000000000 6e00000000000000 7500000000000000"
TRIPLE_FIRST = (
    "0900000000000000 6e00000000000000 7500000000000000 6900000000000000 8900000000000000"
)


@pytest.mark.parametrize(
    ("major", "strings"), [(16, TRIPLE_FIRST[17:]), (19, ARCH_FIRST[17:]), (22, ARCH_FIRST[17:])]
)
def test_strings_come_in_the_order_of_the_release(major: int, strings: str) -> None:
    data = serialize_binary([image()], load_abi(major))
    assert data[:8] == bytes.fromhex("10ff10ad01000000")
    assert data[0x48:0x68] == bytes.fromhex(strings)
    assert data[0x68:0x8F] == b"\0arch\0triple\0nvptx64-nvidia-cuda\0sm_70\0"
    assert len(data) == 0x98


@pytest.mark.parametrize("major", range(15, 24))
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_what_is_written_is_read_again(major: int, size: int) -> None:
    images = [image(data=bytes(size)), image(HOST, b"\x7fELF" * size), image(feature="+ptx83")]
    first, second, third = parse_binary(serialize_binary(images, load_abi(major)))
    assert (first.kind, first.triple, first.arch) == ("cuda", CUDA.triple, "sm_70")
    assert first.data == bytes(size)
    assert (second.kind, second.triple, second.arch) == ("openmp", HOST.triple, "")
    assert second.data == b"\x7fELF" * size
    assert dict(third.strings)["feature"] == "+ptx83"


def test_several_images_are_whole_binaries_one_after_another() -> None:
    abi = load_abi(22)
    both = serialize_binary([image(), image(HOST)], abi)
    assert both == serialize_binary([image()], abi) + serialize_binary([image(HOST)], abi)
    assert len(both) % 8 == 0


def test_strings_that_end_others_share_their_bytes() -> None:
    table, offsets = string_table(["arch", "march", "", "h"])
    assert table == b"\0march\0"
    assert offsets == {"": 0, "march": 1, "arch": 2, "h": 5}


def test_nothing_is_read_from_nothing() -> None:
    assert parse_binary(b"") == ()


def test_kinds_of_other_producers_keep_their_names() -> None:
    data = bytearray(serialize_binary([image()], load_abi(22)))
    for code, name in ((3, "hip"), (4, "hip"), (8, "sycl"), (0, "none"), (77, "kind-77")):
        data[34:36] = code.to_bytes(2, "little")
        assert parse_binary(bytes(data))[0].kind == name


@pytest.mark.parametrize(
    ("offset", "value", "field"),
    [
        (0, b"\0", "magic at offset 0"),
        (4, b"\2", "version at offset 4"),
        (8, b"\7", "size at offset 8"),
        (16, b"\xff", "entry at offset 255"),
        (24, b"\x10", "entry size at offset 24"),
        (48, b"\xff\xff", "string entries at offset 72"),
        (64, b"\xff\xff", "image at offset 144"),
        (72, b"\xff\xff", "string key at offset 65535"),
    ],
)
def test_damage_is_reported_with_offset_and_field(offset: int, value: bytes, field: str) -> None:
    data = bytearray(serialize_binary([image()], load_abi(22)))
    data[offset : offset + len(value)] = value
    with pytest.raises(VerificationError, match=field) as caught:
        parse_binary(bytes(data), location="a.o")
    assert caught.value.location == "a.o"


def test_stray_bytes_after_a_binary_are_refused() -> None:
    with pytest.raises(VerificationError, match="header at offset 152"):
        parse_binary(serialize_binary([image()], load_abi(22)) + bytes(8))


def test_no_truncation_escapes_the_reader() -> None:
    data = serialize_binary([image(data=b"12345678")], load_abi(22))
    for length in range(1, len(data)):
        with pytest.raises(VerificationError):
            parse_binary(data[:length])


def test_bit_flips_are_read_or_refused_but_never_crash_the_reader() -> None:
    data = serialize_binary([image(), image(HOST)], load_abi(22))
    source = random.Random(1)  # noqa: S311 (not for secrets)
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(source.randint(1, 3)):
            broken[source.randrange(len(broken))] ^= 1 << source.randrange(8)
        with contextlib.suppress(VerificationError):
            parse_binary(bytes(broken))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"BC\xc0\xde....", ImageKind.BITCODE),
        (b"\xde\xc0\x17\x0b....", ImageKind.BITCODE),
        (b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little"), ImageKind.CUBIN),
        (b"\x7fELF" + bytes(14) + (62).to_bytes(2, "little"), ImageKind.OBJECT),
        (b".version 8.3", ImageKind.NONE),
        (b"", ImageKind.NONE),
    ],
)
def test_the_first_bytes_tell_the_format(data: bytes, kind: ImageKind) -> None:
    assert image_kind_of(data) is kind
    assert is_bitcode(data) is (kind is ImageKind.BITCODE)
