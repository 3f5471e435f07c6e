from __future__ import annotations

import copy
import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import (
    assert_bounded,
    bit_flips,
    count_calls,
    extreme_fields,
    spliced,
    survives,
    truncations,
)

from mlir_offload.offload.container.bundle import (
    FAT_BINARY_ALIGN,
    Bundle,
    BundledImage,
    bundle_bytes,
    is_bundle,
    read_bundles,
    section_image,
    serialize_bundle,
)
from mlir_offload.offload.container.bundle_writer import (
    bundle_table,
    compressed_version,
    fat_binary_images,
    serialize_compressed_bundle,
)
from mlir_offload.offload.table_check import check_rows
from mlir_offload.toolchain.byte_view import ByteView, memory_view, open_view
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    UsageError,
    VerificationError,
)

HOST = "host-x86_64-unknown-linux-gnu-"
DEVICE = "hip-amdgcn-amd-amdhsa--gfx90a:xnack+"
OTHER = "hip-amdgcn-amd-amdhsa--gfx906"
TEXT = (
    b"\n; __CLANG_OFFLOAD_BUNDLE____START__ host-x86_64-unknown-linux-gnu-\n"
    b"define void @h(){ret void}\n"
    b"\n; __CLANG_OFFLOAD_BUNDLE____END__ host-x86_64-unknown-linux-gnu-\n"
    b"\n; __CLANG_OFFLOAD_BUNDLE____START__ hip-amdgcn-amd-amdhsa--gfx906\n"
    b"no line end"
    b"\n; __CLANG_OFFLOAD_BUNDLE____END__ hip-amdgcn-amd-amdhsa--gfx906\n"
)


def images(*pairs: tuple[str, bytes]) -> tuple[BundledImage, ...]:
    return tuple(BundledImage(name, memory_view(data)) for name, data in pairs)


SOME = images((HOST, b""), (DEVICE, b"code" * 9), (OTHER, b"other code"))


def plain(items: Iterable[BundledImage] = SOME, align: int = 1) -> bytes:
    return b"".join(serialize_bundle(tuple(items), align=align))


def compressed(major: int = 22, method: str = "zstd", align: int = 1) -> bytes:
    return b"".join(serialize_compressed_bundle(SOME, major=major, method=method, align=align))


def wrapped(
    data: bytes, *, version: int = 2, claimed: int | None = None, padding: int = 0
) -> bytes:
    """Return bytes as a compressed bundle, whatever they are."""
    stored = zstandard.ZstdCompressor().compress(data)
    digest = int.from_bytes(hashlib.md5(data).digest()[:8], "little")  # noqa: S324 (the format's)
    size = len(data) if claimed is None else claimed
    if version == 1:
        head = struct.pack("<4sHHIQ", b"CCOB", 1, 1, size, digest)
    else:
        head = struct.pack("<4sHHIIQ", b"CCOB", 2, 1, 24 + len(stored), size, digest)
    return head + stored + bytes(padding)


def read(data: bytes) -> list[Bundle]:
    return list(read_bundles(memory_view(data)))


def contents(bundle: Bundle) -> list[tuple[str, bytes]]:
    return [(item.target_id, item.content.whole()) for item in bundle.images]


def read_contents(data: bytes) -> list[list[tuple[str, bytes]]]:
    return [contents(bundle) for bundle in read(data)]


EXPECTED = [(HOST, b""), (DEVICE, b"code" * 9), (OTHER, b"other code")]


@pytest.mark.parametrize(
    ("target_id", "kind", "triple", "arch"),
    [
        ("host-x86_64-unknown-linux-gnu-", "host", "x86_64-unknown-linux-gnu", ""),
        ("host-x86_64-unknown-linux-gnu", "host", "x86_64-unknown-linux-gnu", ""),
        ("host-x86_64-unknown-linux", "host", "x86_64-unknown-linux", ""),
        ("host-x86_64-unknown-linux--", "host", "x86_64-unknown-linux", ""),
        (f"{HOST}{HOST}", "host", "x86_64-unknown-linux-gnu", ""),
        ("hip-amdgcn-amd-amdhsa--gfx90a:xnack-", "hip", "amdgcn-amd-amdhsa", "gfx90a:xnack-"),
        ("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic", "hipv4", "amdgcn-amd-amdhsa", "gfx9-4-generic"),
        ("openmp-amdgcn-amd-amdhsa-gfx906", "openmp", "amdgcn-amd-amdhsa", "gfx906"),
        ("openmp-nvptx64-nvidia-cuda--sm_90a", "openmp", "nvptx64-nvidia-cuda", "sm_90a"),
        (
            "openmp-nvptx64-nvidia-cuda-unknown-sm_90",
            "openmp",
            "nvptx64-nvidia-cuda-unknown",
            "sm_90",
        ),
        ("hip-spirv64-amd-amdhsa--amdgcnspirv", "hip", "spirv64-amd-amdhsa", "amdgcnspirv"),
        ("hip-amdgcn-amd-amdhsa--gfx9999-", "hip", "amdgcn-amd-amdhsa", "gfx9999"),
        ("", "", "", ""),
    ],
)
def test_a_target_id_tells_kind_triple_and_architecture(
    target_id: str, kind: str, triple: str, arch: str
) -> None:
    (image,) = images((target_id, b""))
    assert (image.kind, image.triple, image.arch) == (kind, triple, arch)


@pytest.mark.parametrize("align", [1, 8, 4096])
def test_what_is_written_is_read(align: int) -> None:
    data = plain(align=align)
    (bundle,) = read(data)
    assert contents(bundle) == EXPECTED
    assert bundle.size_bytes == len(data) == bundle_bytes(SOME, align=align)
    assert [item.content.start % align for item in bundle.images] == [0, 0, 0]


@pytest.mark.parametrize("major", [18, 19, 21, 22])
@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_what_is_compressed_for_a_release_is_read(major: int, method: str) -> None:
    data = compressed(major, method)
    (bundle,) = read(data)
    assert contents(bundle) == EXPECTED
    assert (bundle.version, bundle.compression) == (compressed_version(major), method)
    assert (bundle.size_bytes, bundle.inflated_bytes) == (len(data), len(plain()))


@pytest.mark.parametrize("forms", ["pppp", "zzzz", "1111", "p1z"])
def test_bundles_follow_one_another_as_in_a_section(forms: str) -> None:
    bundles = {
        "p": plain(align=FAT_BINARY_ALIGN),
        "z": compressed(19),
        "1": compressed(18, "zlib"),
    }
    data = b""
    for form in forms:
        data = data.ljust(-(-len(data) // FAT_BINARY_ALIGN) * FAT_BINARY_ALIGN, b"\0")
        data += bundles[form]
    found = read(data + bytes(100))
    assert [contents(bundle) for bundle in found] == [EXPECTED] * len(forms)
    assert all(data[bundle.offset :][:4] in (b"__CL", b"CCOB") for bundle in found)


def test_nothing_but_padding_holds_no_bundle() -> None:
    assert read(b"") == read(bytes(10000)) == []


def test_zeros_between_bundles_cost_little() -> None:
    data = bytes(32 << 20) + plain()
    assert read_contents(data) == [EXPECTED]
    assert count_calls(lambda: read_contents(data)) < 5_000


def test_text_bundles_are_read_between_their_comments() -> None:
    view = memory_view(TEXT)
    assert is_bundle(view)
    (bundle,) = read_bundles(view)
    assert contents(bundle) == [(HOST, b"define void @h(){ret void}\n"), (OTHER, b"no line end")]
    assert read_contents(TEXT.replace(b"\n; ", b"\n// ")) == [contents(bundle)]
    assert read_contents(wrapped(TEXT)) == [contents(bundle)]


def test_an_object_keeps_images_in_sections() -> None:
    content = memory_view(b"code")
    found = section_image(f"__CLANG_OFFLOAD_BUNDLE__{DEVICE}", content)
    assert found == BundledImage(DEVICE, content)
    assert section_image(".text", content) is None


@pytest.mark.parametrize(
    ("data", "known"),
    [(plain(), True), (compressed(), True), (b"\n; other comment\n", False), (b"", False)],
)
def test_bundles_are_told_by_their_first_bytes(*, data: bytes, known: bool) -> None:
    assert is_bundle(memory_view(data)) is known


def test_images_of_a_file_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "large.bundle"
    path.write_bytes(plain(images((HOST, b""), (DEVICE, bytes(8 << 20)))))
    with open_view(path) as view:
        assert view.meter is not None
        before = view.meter.left
        (bundle,) = read_bundles(view)
        assert bundle.images[1].content.size == 8 << 20
        assert before - view.meter.left < 1 << 12


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (0, b"X", "magic at offset 0"),
        (24, b"\xff\xff", "count of images at offset 24"),
        (32, b"\0", f"image of '{HOST}' at offset"),
        (40, b"\xff\xff", f"image of '{HOST}' at offset"),
        (48, b"\xff\xff", "target id at offset 56"),
        (60, b"\xff", "target id at offset 56: it is not ASCII"),
        (32 + 24 + len(HOST), b"\1\0", f"image of '{DEVICE}' at offset 1: it overlaps"),
    ],
)
def test_a_damaged_field_is_named_with_its_offset(place: int, value: bytes, field: str) -> None:
    data = bytearray(plain(images((HOST, b"host"), (DEVICE, b"code"))))
    data[place : place + len(value)] = value
    with pytest.raises(VerificationError) as caught:
        read(bytes(data))
    assert caught.value.message.startswith(f"malformed offload bundle: {field}")


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (4, b"\x09", "version at offset 4: 9 is not known"),
        (6, b"\x07", "compression method at offset 6: 7 is not known"),
        (8, b"\xff\xff", "total size at offset 8"),
        (8, b"\x00\x00", "total size at offset 8"),
        (16, b"\xff", "compressed images at offset 32"),
        (20, b"\xff", "inflated size at offset 24"),
        (24, b"\xff\xff", "hash at offset 24: found 0x"),
        (40, b"\xff", "compressed images at offset 32"),
    ],
)
def test_a_damaged_field_of_a_compressed_bundle_is_named(
    place: int, value: bytes, field: str
) -> None:
    data = bytearray(compressed(22))
    data[place : place + len(value)] = value
    with pytest.raises(VerificationError) as caught:
        read(bytes(data))
    assert caught.value.message.startswith(f"malformed offload bundle: {field}")


def test_what_a_compressed_bundle_holds_is_named_as_inflated() -> None:
    with pytest.raises(VerificationError, match="malformed inflated offload bundle: magic at off"):
        read(wrapped(b"no bundle"))
    with pytest.raises(VerificationError, match="malformed inflated offload bundle: magic at off"):
        read(wrapped(compressed()))


def test_bytes_after_a_bundle_that_are_no_bundle_are_refused() -> None:
    with pytest.raises(VerificationError, match=f"magic at offset {len(plain()) + 3}"):
        read(plain() + b"\0\0\0garbage")


@pytest.mark.parametrize("end", [60, len(TEXT) - 70, len(TEXT) - 1])
def test_a_text_bundle_that_ends_early_is_refused(end: int) -> None:
    with pytest.raises(VerificationError, match=r"(start|end) of an image at offset"):
        read(TEXT[:end])


def test_no_truncation_of_a_bundle_escapes_the_reader() -> None:
    # A text bundle cut within its first line, or data cut within zeros, is identified as another format.
    for data in (plain(), compressed(22), compressed(19, "zlib"), compressed(18)):
        assert survives(read_contents, truncations(data)) == len(data) - 1
    assert survives(read_contents, truncations(TEXT)) > len(TEXT) - 3


@pytest.mark.parametrize(
    "data",
    [plain(), plain(align=64), compressed(22), compressed(19, "zlib"), compressed(18), TEXT],
    ids=["plain", "aligned", "zstd", "zlib", "version 1", "text"],
)
def test_damage_gives_a_result_or_an_error(data: bytes) -> None:
    assert survives(read_contents, bit_flips(data)) > 0
    assert survives(read_contents, extreme_fields(data)) > 0
    assert survives(read_contents, spliced(data, 300)) > 0


def test_damage_inside_a_compressed_bundle_gives_a_result_or_an_error() -> None:
    inside: Iterator[bytes] = (wrapped(data) for data in bit_flips(plain()))
    assert survives(read_contents, inside) > 0
    assert survives(read_contents, (wrapped(data) for data in extreme_fields(plain()))) > 0


def test_many_entries_cannot_name_the_same_bytes() -> None:
    names = [b"hip-amdgcn-amd-amdhsa--gfx%d" % number for number in range(2000)]
    end = 32 + sum(24 + len(name) for name in names)
    header = b"".join(struct.pack("<QQQ", end, 100, len(name)) + name for name in names)
    data = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(names)) + header + bytes(100)
    with pytest.raises(VerificationError, match="it overlaps the header or another image"):
        read(data)
    assert_bounded(read, data, 8)


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    bomb = wrapped(bytes(70 << 20))
    with pytest.raises(VerificationError, match="inflated size at offset 16: 73400320 bytes"):
        read(bomb)
    assert_bounded(read, bomb, 1)


def test_many_small_bombs_share_one_limit() -> None:
    one = wrapped(plain(images((HOST, bytes(40 << 20)))))
    view = memory_view(one + one)
    bundles = read_bundles(view)
    assert next(bundles).inflated_bytes > 40 << 20
    with pytest.raises(
        VerificationError, match=r"more than the \d+ that this file may still inflate to"
    ):
        next(bundles)


def test_a_bundle_of_the_first_version_may_be_padded() -> None:
    first = wrapped(plain(), version=1, padding=30)
    data = first.ljust(FAT_BINARY_ALIGN, b"\0") + wrapped(plain(), version=1)
    assert read_contents(data) == [EXPECTED] * 2


def test_the_sizes_in_the_header_are_those_of_the_bundle() -> None:
    data, inside = compressed(22, "zlib"), plain()
    digest = int.from_bytes(hashlib.md5(inside).digest()[:8], "little")  # noqa: S324 (the format's)
    header = struct.unpack("<4sHHQQQ", data[:32])
    assert header == (b"CCOB", 3, 0, len(data), len(inside), digest)
    assert zlib.decompress(data[32:]) == inside


def test_two_images_for_one_target_are_refused() -> None:
    with pytest.raises(UsageError, match=f"two images of a bundle have the target id '{OTHER}'"):
        plain(images((HOST, b""), (OTHER, b"1"), (OTHER, b"2")))


@pytest.mark.parametrize("align", [0, -1])
def test_an_alignment_that_is_none_is_refused(align: int) -> None:
    with pytest.raises(UsageError, match=f"cannot align images to {align} bytes"):
        plain(align=align)


@pytest.mark.parametrize("major", [15, 17])
def test_a_release_without_compressed_bundles_gets_none(major: int) -> None:
    with pytest.raises(CompatibilityError, match=f"LLVM {major} reads no compressed bundles"):
        compressed(major)


def test_sizes_beyond_the_header_are_refused() -> None:
    class Zeros:
        content = None

        def read_at(self, _offset: int, size: int) -> bytes:
            return bytes(size)

    large = (BundledImage(DEVICE, ByteView(Zeros(), 0, 5 << 30)),)
    sized = bundle_bytes(large)
    assert sized > 1 << 32
    with pytest.raises(CompatibilityError, match="too many for version 2 of compressed bundles"):
        next(serialize_compressed_bundle(large, major=19))


@pytest.mark.parametrize(
    ("major", "ids"),
    [
        (16, ["host-x86_64-unknown-linux", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+"]),
        (18, ["host-x86_64-unknown-linux--", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+"]),
        (19, ["host-x86_64-unknown-linux--", DEVICE]),
        (22, ["host-x86_64-unknown-linux-gnu-", DEVICE]),
    ],
)
def test_a_fat_binary_has_the_ids_of_its_release(major: int, ids: list[str]) -> None:
    found = fat_binary_images([("gfx90a:xnack+", memory_view(b"code"))], major=major)
    assert [item.target_id for item in found] == ids


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(CompatibilityError, match=r"LLVM 14 are not known \(known: from 15\)"):
        compressed_version(14)


@pytest.mark.parametrize("name", ["compressed", "fat_binary"])
def test_the_table_must_rise_and_name_its_sources(name: str) -> None:
    rows = copy.deepcopy(bundle_table()[name])
    check_rows(name, rows, 15)
    with pytest.raises(ValueError, match="rows must rise"):
        check_rows(name, rows[::-1], 15)
    rows[0]["source"] = ""
    with pytest.raises(ValueError, match="name no source"):
        check_rows(name, rows, 15)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=0, max_codepoint=127), max_size=40),
        st.binary(max_size=200),
        max_size=8,
    ),
    st.integers(1, 5000),
    st.sampled_from([0, 18, 19, 22]),
)
def test_any_bundle_survives_the_round_trip(
    parts: dict[str, bytes], align: int, major: int
) -> None:
    items = images(*parts.items())
    data = plain(items, align)
    if major:
        data = b"".join(serialize_compressed_bundle(items, major=major, align=align))
    assert read_contents(data) == [list(parts.items())]


@given(st.binary(max_size=200))
def test_any_bytes_give_a_result_or_an_error(tail: bytes) -> None:
    heads = (b"", plain()[:32], compressed()[:32], compressed(18)[:20], TEXT[:80])
    survives(read_contents, (head + tail for head in heads))
