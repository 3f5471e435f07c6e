from __future__ import annotations

import struct
from pathlib import Path

import lz4.block
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

from mlir_offload.offload.container.fatbin import FatbinImage, is_fatbin, read_fatbins
from mlir_offload.toolchain.byte_view import memory_view, open_view
from mlir_offload.toolchain.errors import CompatibilityError, VerificationError

GOLDEN = Path(__file__).parents[1] / "golden" / "fatbin" / "lto_and_cubin.fatbin"
BITS_64, DEBUG, LZ4, ZSTD, SPECIFIC, FAMILY = 0x1, 0x2, 0x2000, 0x8000, 0x100000, 0x200000
PLAIN = b"ab" * 64
LZ4_BLOCK = lz4.block.compress(PLAIN, store_size=False)
ZSTD_FRAME = zstandard.ZstdCompressor().compress(PLAIN)


def image(  # noqa: PLR0913 (the fields of an entry)
    data: bytes,
    *,
    kind: int = 2,
    arch: int = 90,
    flags: int = BITS_64,
    size: int = 0,
    name: bytes = b"",
    options: bytes = b"",
) -> bytes:
    """Return an entry as CUDA 13.0 lays it out: header, name, options, image."""
    padded = data.ljust(-(-len(data) // 8) * 8, b"\0")
    extra = name.ljust(-(-len(name) // 8) * 8, b"\0")
    options_at = 0
    if options:
        options_at = 64 + len(extra)
        extra += struct.pack("<II", options_at + 8, len(options)) + options
        extra = extra.ljust(-(-len(extra) // 8) * 8, b"\0")
    fields = (
        *(kind, 0x101, 64 + len(extra), len(padded), len(data) if size else 0, options_at, 8, 1),
        *(arch, 64 if name else 0, len(name), flags, 0, size),
    )
    return struct.pack("<HHIQIIHHIIIQQQ", *fields) + extra + padded


def fatbin(*images: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(b"".join(images))) + b"".join(images)


def read(data: bytes) -> tuple[FatbinImage, ...]:
    return read_fatbins(memory_view(data))


def read_contents(data: bytes) -> list[bytes]:
    return [item.content.whole() for item in read(data)]


SAMPLE = fatbin(
    image(b"\x7fELF567", name=b"k.cu"),
    image(ZSTD_FRAME, kind=1, flags=BITS_64 | ZSTD, size=len(PLAIN), options=b"-O1 -v"),
    image(LZ4_BLOCK, flags=BITS_64 | LZ4, size=len(PLAIN)),
)


def test_images_tell_kind_architecture_and_version() -> None:
    data = fatbin(image(b"12345678"), image(b"ptx code", kind=1, arch=100))
    assert is_fatbin(memory_view(data))
    assert [
        (item.kind, item.arch, item.version, item.content.whole(), item.is_64_bit)
        for item in read(data)
    ] == [
        ("elf", "sm_90", (1, 8), b"12345678", True),
        ("ptx", "sm_100", (1, 8), b"ptx code", True),
    ]


def test_images_tell_source_options_and_debug_information() -> None:
    (found,) = read(
        fatbin(image(b"ptx code", kind=1, name=b"a/k.cu", options=b" -O1 -v ", flags=DEBUG))
    )
    assert (found.name, found.options, found.is_debug) == ("a/k.cu", "-O1 -v", True)
    assert not found.is_64_bit


def test_attributes_of_a_cubin_are_no_options() -> None:
    assert read(fatbin(image(b"12345678", options=b"\0\2\x09\0")))[0].options == ""


@pytest.mark.parametrize(
    ("flags", "arch"), [(0, "sm_90"), (SPECIFIC, "sm_90a"), (FAMILY, "sm_90f")]
)
def test_letters_of_the_architecture_are_flags(flags: int, arch: str) -> None:
    assert read(fatbin(image(b"12345678", flags=flags)))[0].arch == arch


def test_a_kind_without_a_name_is_told_by_its_number() -> None:
    assert read(fatbin(image(b"12345678", kind=64)))[0].kind == "kind-64"


@pytest.mark.parametrize("gap", [0, 8, 24, 4096, 5 << 20])
def test_fat_binaries_may_follow_one_another_with_padding(gap: int) -> None:
    data = fatbin(image(b"12345678")) + bytes(gap) + fatbin(image(b"87654321")) + bytes(gap)
    assert read_contents(data) == [b"12345678", b"87654321"]


def test_zeros_cost_little() -> None:
    data = bytes(64 << 20)
    assert read(data) == ()
    assert count_calls(lambda: read(data)) < 5_000


@pytest.mark.parametrize(
    ("flags", "stored", "compression"), [(LZ4, LZ4_BLOCK, "lz4"), (ZSTD, ZSTD_FRAME, "zstd")]
)
def test_compressed_images_are_inflated_when_asked_for(
    flags: int, stored: bytes, compression: str
) -> None:
    (found,) = read(fatbin(image(stored, flags=flags, size=len(PLAIN))))
    assert (found.compression, found.stored_bytes) == (compression, len(stored))
    assert found.size_bytes == len(PLAIN)
    assert found.content.whole() == PLAIN


@pytest.mark.parametrize("zeros", range(6))
def test_ptx_comes_without_the_zeros_that_end_it(zeros: int) -> None:
    text = b"// made up\n"
    (plain,) = read(fatbin(image(text + bytes(zeros), kind=1)))
    frame = zstandard.ZstdCompressor().compress(text + b"\0")
    (packed,) = read(fatbin(image(frame, kind=1, flags=ZSTD, size=len(text) + 1)))
    assert plain.content.whole() == packed.content.whole() == text


def test_listing_copies_no_image(tmp_path: Path) -> None:
    path = tmp_path / "large.fatbin"
    path.write_bytes(fatbin(*[image(bytes(1 << 20)) for _ in range(16)]))
    with open_view(path) as view:
        assert view.meter is not None
        before = view.meter.left
        assert len(read_fatbins(view)) == 16
        assert before - view.meter.left < 1 << 16


@pytest.mark.parametrize("flags", [LZ4, ZSTD])
def test_damaged_compression_is_refused(flags: int) -> None:
    (found,) = read_fatbins(
        memory_view(fatbin(image(b"\xff" * 16, flags=flags, size=99)), location="a.out")
    )
    with pytest.raises(VerificationError, match="compressed image at offset 80: damaged") as caught:
        _ = found.content
    assert caught.value.location == "a.out"


def test_lto_code_of_nvcc_is_listed_but_not_read() -> None:
    with open_view(GOLDEN) as view:
        lto, cubin = read_fatbins(view)
        assert (lto.kind, lto.arch, lto.compression) == ("nvvm", "sm_80", "scrambled")
        assert lto.options == "-ftz=0 -prec_div=1 -prec_sqrt=1 -fmad=1"
        assert (cubin.kind, cubin.compression, cubin.version) == ("elf", "zstd", (1, 8))
        assert cubin.content.head(4) == b"\x7fELF"
        with pytest.raises(
            CompatibilityError, match="nvvm image for sm_80 is stored in an undocumented"
        ):
            _ = lto.content


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (0, 7, "magic at offset 0"),
        (4, 9, "version at offset 4"),
        (6, 8, "header size at offset 6"),
        (8, 0xFF, "size at offset 16"),
        (16 + 4, 63, "image header size at offset 20"),
        (16 + 8, 0xFF, "padded size at offset 104"),
        (16 + 20, 0xFF, "options at offset 271"),
        (16 + 36, 0xFF, "name at offset 80"),
    ],
)
def test_a_damaged_field_is_named_with_its_offset(place: int, value: int, field: str) -> None:
    data = bytearray(fatbin(image(b"12345678", kind=1, name=b"k.cu", options=b"-v")))
    data[place] = value
    with pytest.raises(VerificationError, match=f"malformed fat binary: {field}"):
        read(bytes(data))


def test_a_compressed_image_larger_than_its_place_is_refused() -> None:
    data = bytearray(fatbin(image(ZSTD_FRAME, flags=ZSTD, size=len(PLAIN))))
    data[16 + 16] = 0xFF
    with pytest.raises(VerificationError, match="compressed size at offset 32: 255 bytes in"):
        read(bytes(data))


def test_images_may_not_claim_to_inflate_without_end() -> None:
    data = fatbin(*[image(ZSTD_FRAME, flags=ZSTD, size=30 << 20) for _ in range(3)])
    with pytest.raises(VerificationError, match="would inflate to more than 67108864 bytes"):
        read(data)


def test_no_truncation_escapes_the_reader() -> None:
    assert survives(read, truncations(SAMPLE)) == len(SAMPLE) - 1


@pytest.mark.parametrize(
    "variants", [bit_flips(SAMPLE), extreme_fields(SAMPLE), spliced(SAMPLE, 500)]
)
def test_damage_gives_a_result_or_an_error(variants: object) -> None:
    assert survives(read_contents, variants) > 0  # type: ignore[arg-type]


def test_damage_to_a_real_file_gives_a_result_or_an_error() -> None:
    data = GOLDEN.read_bytes()
    assert survives(read_contents, bit_flips(data[:240] + data[2180:2260], 1)) > 0
    assert survives(read_contents, extreme_fields(data, 320)) > 0


def test_memory_is_bounded_by_the_size_of_the_file() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(60 << 20))
    assert_bounded(read, fatbin(image(bomb, flags=ZSTD, size=60 << 20)), 1)
    assert_bounded(read, fatbin(*[image(b"12345678") for _ in range(5000)]), 8)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=60),
            st.integers(0, 1 << 16),
            st.sampled_from([0, LZ4, ZSTD]),
            st.integers(0, 64).map(lambda count: count * 8),
        ),
        max_size=5,
    )
)
def test_what_is_laid_out_is_read(items: list[tuple[bytes, int, int, int]]) -> None:
    compress = {
        0: lambda data: data,
        LZ4: lambda data: lz4.block.compress(data, store_size=False),
        ZSTD: zstandard.ZstdCompressor().compress,
    }
    data = b"".join(
        fatbin(image(compress[flag](raw), arch=arch, flags=flag, size=len(raw) if flag else 0))
        + bytes(gap)
        for raw, arch, flag, gap in items
    )
    found = read(data)
    assert [item.arch for item in found] == [f"sm_{arch}" for _, arch, _, _ in items]
    for item, (raw, *_) in zip(found, items, strict=True):
        assert item.content.whole().rstrip(b"\0") == raw.rstrip(b"\0")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_result_or_an_error(tail: bytes) -> None:
    survives(read_contents, (head + tail for head in (b"", SAMPLE[:16], SAMPLE[:80])))
