"""The contents of files: nested containers, and damage that does not hide other contents."""

from __future__ import annotations

import hashlib
import struct
import zlib
from pathlib import Path

import pytest
from support.hostile import assert_bounded, bit_flips, spliced, survives, truncations
from support.offload_binary import Image as Stored
from support.offload_binary import compressed, write

from mlir_offload.offload.container.bundle import BundledImage, serialize_bundle
from mlir_offload.offload.container.contents import Part, ProblemKind, all_images, all_problems
from mlir_offload.offload.container.file_form import FileForm, file_form
from mlir_offload.offload.container.packager import ImageRecord, record_parts
from mlir_offload.offload.file.contents_reader import read_contents, read_contents_of
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import InputOutputError

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CUBIN = (GOLDEN / "cubin" / "sm_90.11.8.cubin").read_bytes()
FATBIN = (GOLDEN / "fatbin" / "lto_and_cubin.fatbin").read_bytes()
PTX = b"// of a test\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"


def contents(data: bytes) -> Part:
    return read_contents_of(memory_view(data, location="file"), "file", with_hashes=True)


def packaged(content: bytes, *, kind: int = 2, arch: str = "sm_90") -> bytes:
    strings = ((b"triple", b"nvptx64-nvidia-cuda"), (b"arch", arch.encode()))
    record = ImageRecord(kind, 0, strings, memory_view(content))
    parts = record_parts(record)
    return b"".join(part if isinstance(part, bytes) else part.whole() for part in parts)


def bundled(*images: tuple[str, bytes]) -> bytes:
    return b"".join(serialize_bundle([BundledImage(n, memory_view(data)) for n, data in images]))


def archive(*members: tuple[str, bytes], thin: bool = False) -> bytes:
    data = b"!<thin>\n" if thin else b"!<arch>\n"
    for name, content in members:
        data += f"{name + '/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode()
        data += b"" if thin else content + b"\n" * (len(content) % 2)
    return data


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"", FileForm.EMPTY),
        (b"!<arch>\n", FileForm.ARCHIVE),
        (b"!<thin>\n", FileForm.THIN_ARCHIVE),
        (CUBIN, FileForm.DEVICE_ELF),
        (b"\x7fELF\x01\x01" + bytes(46), FileForm.FOREIGN_ELF),
        (b"\x7fELF\x02\x02" + bytes(58), FileForm.FOREIGN_ELF),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00" + bytes(44), FileForm.HOST_ELF),
        (packaged(b""), FileForm.OFFLOAD_BINARY),
        (FATBIN, FileForm.FAT_BINARY),
        (bundled(("host-x86_64-unknown-linux-gnu-", b"")), FileForm.BUNDLE),
        (b"CCOB\x03\0", FileForm.BUNDLE),
        (b"BC\xc0\xde", FileForm.BITCODE),
        (b"\xde\xc0\x17\x0b", FileForm.BITCODE),
        (b"\x03\x02\x23\x07", FileForm.SPIRV),
        (b"ML\xefR\x06", FileForm.MLIR_BYTECODE),
        (PTX, FileForm.PTX),
        (b'target triple = "x86_64-pc-linux-gnu"\n', FileForm.LLVM_IR),
        (b"; a comment\n\ndefine void @f() { ret void }\n", FileForm.LLVM_IR),
        (b"// a comment\nmodule { }\n", FileForm.MLIR),
        (b"gpu.module @m { }\n", FileForm.MLIR),
        (b'"builtin.module"() ({}) : () -> ()\n', FileForm.MLIR),
        (b"#map = affine_map<() -> ()>\nfunc.func @f() { return }\n", FileForm.MLIR),
        (b"%0, %1:2 = test.op : i1\ngpu.module @m { }\n", FileForm.MLIR),
        (b"/* a\ncomment */ // of two\n.version 8.0\n", FileForm.PTX),
        (b"dear reader\n", FileForm.TEXT),
        (b"# Kernels\n\n    func.func @f() {\n", FileForm.TEXT),
        (b"<pre>\n  gpu.module @m {\n", FileForm.TEXT),
        (b'{"code": "\n#map = affine_map<() -> ()>"}\n', FileForm.TEXT),
        (b"#!/bin/sh\nmlir-opt <<END\nmodule {}\nEND\n", FileForm.TEXT),
        (b'#include "f.h"\nchar a[] = R"(\nfunc.func @f()\n)";\n', FileForm.TEXT),
        (b'"""A docstring\nmodule of Python."""\n', FileForm.TEXT),
        (b"This\nmodule calls it.\n", FileForm.TEXT),
        (b"An example:\n\ndefine void @f() { ret void }\n", FileForm.TEXT),
        (b"In PTX:\n\n.version 8.0\n", FileForm.TEXT),
        (b"/*" * 30000, FileForm.TEXT),
        ("größer\n".encode(), FileForm.TEXT),
        (b"\x00\x01\x02\x03", FileForm.UNKNOWN),
        (b"\xff\xfe\xfd", FileForm.UNKNOWN),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_format_is_told_by_the_content(data: bytes, form: FileForm) -> None:
    assert file_form(memory_view(data)) is form


def test_a_cubin_alone_is_one_image_with_what_it_says_of_itself() -> None:
    part = contents(CUBIN)
    (image,) = part.images
    assert (part.form, image.form, image.arch, image.container) == ("cubin", "cubin", "sm_90", None)
    assert image.code is not None
    assert [kernel.name for kernel in image.code.kernels]
    assert image.sha256 == hashlib.sha256(CUBIN).hexdigest()


def test_containers_within_containers_are_entered_and_images_counted_as_they_are_met() -> None:
    data = packaged(FATBIN) + packaged(bundled(("hip-amdgcn-amd-amdhsa--gfx90a", PTX)))
    part = contents(data)
    outer = [(image.form, image.container and image.container.form) for image in part.images]
    assert outer == [
        (FileForm.FAT_BINARY, "offload binary"),
        (FileForm.BUNDLE, "offload binary"),
    ]
    assert [image.index for image in all_images(part)] == list(range(len(list(all_images(part)))))
    (inner,) = part.images[1].images
    assert (inner.kind, inner.arch, inner.form) == ("hip", "gfx90a", "PTX")


def test_nesting_has_a_limit_that_is_said() -> None:
    data = PTX
    for _ in range(20):
        data = packaged(data)
    part = contents(data)
    assert len(list(all_images(part))) < 12
    assert [problem.kind for problem in all_problems(part)] == [ProblemKind.UNSUPPORTED]


@pytest.mark.parametrize(
    "field", [0, 4, 8, 16, 24], ids=["magic", "version", "size", "entry", "entry size"]
)
def test_a_damaged_offload_binary_does_not_hide_its_neighbours(field: int) -> None:
    pieces = [packaged(PTX, arch=f"sm_{number}") for number in (70, 80, 90)]
    damaged = bytearray(b"".join(pieces))
    struct.pack_into("<I", damaged, len(pieces[0]) + field, 0xFFFFFF)
    part = contents(bytes(damaged))
    assert [image.arch for image in part.images] == ["sm_70", "sm_90"]
    problems = list(all_problems(part))
    assert problems
    assert all(problem.kind is ProblemKind.DAMAGED for problem in problems)
    assert "offset" in problems[0].message


def test_a_damaged_fat_binary_does_not_hide_the_next_one() -> None:
    good = contents(FATBIN)
    damaged = bytearray(FATBIN + FATBIN + FATBIN)
    damaged[len(FATBIN) + 4] = 99
    part = contents(bytes(damaged))
    assert len(part.images) == 2 * len(good.images)
    assert [problem.kind for problem in part.problems] == [ProblemKind.DAMAGED]


def test_a_damaged_image_keeps_its_place_and_says_what_is_wrong() -> None:
    part = contents(packaged(CUBIN[:200]) + packaged(CUBIN))
    first, second = part.images
    assert [problem.kind for problem in first.problems] == [ProblemKind.DAMAGED]
    assert "offset" in first.problems[0].message
    assert first.sha256
    assert second.code is not None


def test_a_damaged_member_does_not_hide_the_others() -> None:
    part = contents(archive(("a.o", CUBIN), ("b.o", CUBIN[:100]), ("c.o", CUBIN)))
    assert [member.name for member in part.members] == ["file(a.o)", "file(b.o)", "file(c.o)"]
    assert [bool(list(all_problems(member))) for member in part.members] == [False, True, False]


def test_an_archive_that_ends_early_shows_the_members_before() -> None:
    part = contents(archive(("a.o", CUBIN), ("b.o", CUBIN))[:-50])
    assert [member.name for member in part.members] == ["file(a.o)"]
    assert "offset" in part.problems[0].message


def test_a_compressed_container_within_a_compressed_one_is_refused() -> None:
    inner = compressed(write([Stored(PTX)], 3), zlib.compress)
    outer = compressed(write([Stored(inner)], 3), zlib.compress)
    problems = [problem.message for problem in all_problems(contents(outer))]
    assert any("within a compressed one" in message for message in problems)


def test_members_of_a_thin_archive_are_followed_within_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "a.o").write_bytes(CUBIN)
    (tmp_path / "b.o").write_bytes(CUBIN)
    (folder / "c.o").symlink_to(tmp_path / "b.o")
    library = folder / "lib.a"
    library.write_bytes(
        archive(("a.o", CUBIN), ("c.o", CUBIN), ("gone.o", CUBIN), ("a.o", CUBIN), thin=True)
    )
    part = read_contents(library)
    assert [len(member.images) for member in part.members] == [1, 0, 0, 0]
    said = [problem.message for member in part.members for problem in member.problems]
    assert ["outside" in said[0], "No such file" in said[1], "more than once" in said[2]] == [
        True
    ] * 3


def test_a_thin_archive_that_names_itself_ends(tmp_path: Path) -> None:
    library = tmp_path / "l.a"
    library.write_bytes(archive(*(("l.a", b"x"),) * 50, thin=True))
    part = read_contents(library)
    assert sum(1 for _ in all_problems(part)) >= 49


@pytest.mark.parametrize("kind", ["cuda", "hip", "openmp"])
@pytest.mark.parametrize("release", range(15, 23))
def test_entries_in_the_text_of_every_release_are_read(kind: str, release: int) -> None:
    text = (GOLDEN / "entries" / f"{kind}.{release}.ll").read_bytes()
    part = contents(text)
    assert part.entries
    assert {entry.kind for entry in part.entries} == {kind}
    assert all(entry.first_release <= release <= entry.last_release for entry in part.entries)
    assert any(entry.is_kernel for entry in part.entries)


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError):
        read_contents(tmp_path)
    with pytest.raises(InputOutputError):
        read_contents(tmp_path / "missing")


SMALL = archive(("a.o", packaged(PTX)), ("b.o", bundled(("hip-x-y-z--gfx1", PTX))))


def test_no_damage_makes_it_raise() -> None:
    # Damage becomes a problem in the result; the file is not rejected.
    variants = [*truncations(SMALL, 3), *bit_flips(SMALL, 5), *spliced(SMALL, 300)]
    assert survives(contents, iter(variants)) == 0


def test_memory_is_bounded_by_the_size() -> None:
    assert_bounded(contents, packaged(bytes(1 << 20)) * 8, 2)
