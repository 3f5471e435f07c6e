from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from support.device_image import DeviceImage, serialize_binary
from support.offload_binary import Image, compressed, write

from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import read_binary
from mlir_offload.offload.container.packager import string_table
from mlir_offload.offload.image import ImageKind
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.target import Kind, Target

CUDA = Target(Kind.CUDA, "nvptx64-nvidia-cuda", "sm_70")
HOST = Target(Kind.OPENMP, "x86_64-pc-linux-gnu", "host")


def image(target: Target = CUDA, data: bytes = b"i", feature: str = "") -> DeviceImage:
    return DeviceImage(target, data, ImageKind.OBJECT, feature=feature)


# The bytes 0x40 to 0x90 that the packager of each release writes for the image above.
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
    abi = load_abi(major)
    first, second, third = read_binary(memory_view(serialize_binary(images, abi)))
    assert (first.kind, first.triple, first.arch) == ("cuda", CUDA.triple, "sm_70")
    assert first.data == bytes(size)
    assert (second.kind, second.triple, second.arch) == ("openmp", HOST.triple, abi.host_arch)
    assert abi.host_arch == ("" if major < 23 else "generic")
    assert second.data == b"\x7fELF" * size
    assert dict(third.strings)["feature"] == "+ptx83"


def test_several_images_are_whole_binaries_one_after_another() -> None:
    abi = load_abi(22)
    both = serialize_binary([image(), image(HOST)], abi)
    assert both == serialize_binary([image()], abi) + serialize_binary([image(HOST)], abi)
    assert len(both) % 8 == 0


def test_strings_that_end_others_share_their_bytes() -> None:
    table = string_table([b"arch", b"march", b"", b"h"])
    assert table.content == b"\0march\0"
    assert table.offsets == {b"": 0, b"march": 1, b"arch": 2, b"h": 5}


def test_nothing_is_read_from_nothing() -> None:
    assert read_binary(memory_view(b"")) == ()


def test_kinds_of_other_producers_keep_their_names() -> None:
    data = bytearray(serialize_binary([image()], load_abi(22)))
    for code, name in ((3, "hip"), (4, "hip"), (8, "sycl"), (0, "none"), (77, "kind-77")):
        data[34:36] = code.to_bytes(2, "little")
        assert read_binary(memory_view(bytes(data)))[0].kind == name


@pytest.mark.parametrize(
    ("offset", "value", "field"),
    [
        (0, b"\0", "magic at offset 0"),
        (4, b"\4", "version at offset 4"),
        (8, b"\7", "size at offset 8"),
        (16, b"\xff", "entry at offset 255"),
        (24, b"\x10", "entry size at offset 24"),
        (48, b"\xff\xff", "string count at offset 48"),
        (48, b"\x06", "string entries at offset 72"),
        (64, b"\xff\xff", "image at offset 144"),
        (72, b"\xff\xff", "string key at offset 65535"),
    ],
)
def test_damage_is_reported_with_offset_and_field(offset: int, value: bytes, field: str) -> None:
    data = bytearray(serialize_binary([image()], load_abi(22)))
    data[offset : offset + len(value)] = value
    with pytest.raises(VerificationError, match=field) as caught:
        read_binary(memory_view(bytes(data), location="a.o"))
    assert caught.value.location == "a.o"


def test_stray_bytes_after_a_binary_are_refused() -> None:
    with pytest.raises(VerificationError, match="header at offset 152"):
        read_binary(memory_view(serialize_binary([image()], load_abi(22)) + bytes(8)))


@pytest.mark.parametrize("version", [2, 3])
def test_images_of_a_newer_container_are_read(version: int) -> None:
    images = [
        Image(b"first"),
        Image(b"", (("arch", ""), ("triple", "x86_64-pc-linux-gnu")), 1, 1, flags=1),
        Image(b"\0" * 9, (), 0, 4),
    ]
    read = read_binary(memory_view(write(images, version) + write(images[:1], version)))
    assert [image.data for image in read] == [b"first", b"", b"\0" * 9, b"first"]
    assert [image.kind for image in read] == ["cuda", "openmp", "hip", "cuda"]
    assert [image.flags for image in read] == [0, 1, 0, 0]
    assert [image.strings for image in read] == [image.strings for image in (*images, images[0])]
    assert {image.version for image in read} == {version}


def test_a_value_with_a_size_may_hold_nul_bytes() -> None:
    (read,) = read_binary(memory_view(write([Image(b"", (("symbols", "one\0two"),))], 2)))
    assert read.strings == (("symbols", "one\0two"),)


@pytest.mark.parametrize("compress", [zlib.compress, zstandard.ZstdCompressor().compress])
def test_compressed_containers_are_read(compress: Callable[[bytes], bytes]) -> None:
    images = [Image(bytes(5000)), Image(b"second")]
    data = compressed(write(images, 3), compress) + write([Image(b"plain")], 3)
    read = read_binary(memory_view(data))
    assert [image.data for image in read] == [bytes(5000), b"second", b"plain"]
    assert read[1].arch == "sm_90"


@pytest.mark.parametrize(
    ("size", "field"),
    [
        (1 << 40, r"inflated size at offset 32: \d+ bytes cannot inflate to 1099511627776"),
        (5, "inflated size at offset 32"),
        (4000, "compressed content at offset 40"),
        (6000, "compressed content at offset 40"),
    ],
)
@pytest.mark.parametrize("compress", [zlib.compress, zstandard.ZstdCompressor().compress])
def test_a_wrong_size_of_compressed_content_is_reported(
    compress: Callable[[bytes], bytes], size: int, field: str
) -> None:
    data = compressed(write([Image(bytes(5000))], 3), compress, size)
    with pytest.raises(VerificationError, match=field):
        read_binary(memory_view(data))


def test_an_image_is_a_view_of_the_file(tmp_path: Path) -> None:
    data = serialize_binary([image(data=b"first"), image(HOST, b"second")], load_abi(22))
    (tmp_path / "images").write_bytes(data)
    with open_view(tmp_path / "images") as view:
        _, second = read_binary(view)
        assert second.content.source is view.source
        assert data[second.content.start :][: second.content.size] == b"second" == second.data


def test_strings_that_are_no_text_can_be_shown() -> None:
    data = serialize_binary([image(feature="+ptx83")], load_abi(22)).replace(b"+ptx", b"\xff\x1bpt")
    (read,) = read_binary(memory_view(data))
    assert dict(read.strings)["feature"] == "\\xff\x1bpt83"
