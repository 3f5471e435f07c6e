from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.hostile import bit_flips, spliced, survives, truncations

from mlir_offload.driver.step.object_file import write_members
from mlir_offload.offload.container.archive import is_archive, iterate_members
from mlir_offload.offload.file.contents_reader import read_contents
from mlir_offload.offload.link.objects import read_objects
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import InputOutputError, VerificationError


def member(name: str, content: bytes, size: int | None = None) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content) if size is None else size:<10}`\n"
    return header.encode() + content + b"\n" * (len(content) % 2)


def stored(data: bytes) -> list[tuple[str, bytes]]:
    members = iterate_members(memory_view(data, location="a.a"))
    return [(item.name, item.content.whole()) for item in members if item.content]


def test_members_are_read_with_short_and_long_names() -> None:
    names = b"a_name_of_more_than_16_bytes.o/\nsecond/\n"
    data = b"!<arch>\n" + member("/", b"xx") + member("//", names)
    data += member("short.o/", b"odd") + member("/0", b"even") + member("/32", b"")
    assert is_archive(memory_view(data))
    assert stored(data) == [
        ("short.o", b"odd"),
        ("a_name_of_more_than_16_bytes.o", b"even"),
        ("second", b""),
    ]


def test_members_are_read_with_names_as_bsd_stores_them() -> None:
    data = b"!<arch>\n" + member("__.SYMDEF SORTED", b"xx")
    data += member("#1/20", b"with spaces in it.o\0content")
    assert stored(data) == [("with spaces in it.o", b"content")]


def test_members_of_a_thin_archive_lie_beside_it() -> None:
    data = b"!<thin>\n" + member("//", b"x.o/\n\n") + member("/0", b"", size=7)
    (found,) = iterate_members(memory_view(data, location="/lib/a.a"))
    assert (found.name, found.content, found.file) == ("x.o", None, Path("/lib/x.o"))


def test_a_member_of_a_thin_archive_that_is_gone_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.a"
    path.write_bytes(b"!<thin>\n" + member("//", b"x.o/\n\n") + member("/0", b"", size=7))
    with pytest.raises(InputOutputError, match=r"cannot read .*x\.o: No such file"):
        read_objects(path)


def thin(*names: str) -> bytes:
    """Return a thin archive whose members have these names, however long."""
    table = "".join(f"{name}/\n" for name in names).encode()
    starts = [sum(len(name) + 2 for name in names[:number]) for number in range(len(names))]
    members = b"".join(member(f"/{start}", b"", size=7) for start in starts)
    return b"!<thin>\n" + member("//", table) + members


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x\0.o", "it contains a NUL byte"),
        ("loop", "loop"),
        ("/dev/zero", "it is not a regular file|outside the library's directory"),
        ("pipe", "it is not a regular file"),
        (".", "it is not a regular file"),
        ("n" * 3000, "File name too long"),
        ("n" * 5000, "it is not in the table of long names"),
        ("d/" * 2040 + "x.o", "File name too long|No such file"),
    ],
    ids=["nul", "loop", "device", "pipe", "folder", "long", "longer", "deep"],
)
def test_a_member_of_a_thin_archive_that_is_no_file_is_reported(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "a.a"
    path.write_bytes(thin(name))
    for read in (read_objects, lambda library: write_members(library, tmp_path / "copied")):
        with pytest.raises((InputOutputError, VerificationError), match=f"(?i){reason}|symbolic"):
            read(path)
    contents = read_contents(path, with_hashes=True)
    problems = [p.message for part in (contents, *contents.members) for p in part.problems]
    assert len(problems) == 1
    assert re.search(f"(?i){reason}", problems[0]), problems


def test_a_thin_archive_that_contains_itself_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.a"
    path.write_bytes(thin("a.a", "a.a"))
    assert read_objects(path) == ()
    contents = read_contents(path, with_hashes=True)
    messages = [p.message for part in contents.members for p in part.problems]
    assert any("the library names it more than once" in message for message in messages)


@pytest.mark.parametrize("label", ["a\0b.o/", "#1/4"])
def test_a_name_with_a_nul_inside_is_refused(label: str) -> None:
    with pytest.raises(VerificationError, match="member name at offset 8: it contains a NUL byte"):
        stored(b"!<arch>\n" + member(label, b"a\0b.content"))


@pytest.mark.parametrize("label", ["/²", "#1/²", "#1/"])
def test_a_name_that_begins_as_a_place_and_has_no_number_is_a_name(label: str) -> None:
    header = label.encode().ljust(16) + member("a.o/", b"xx")[16:]
    assert stored(b"!<arch>\n" + header) == [(label.removesuffix("/"), b"xx")]


@pytest.mark.parametrize("damage", [b"garbage" * 10, member("a.o/", b"xx")[:30]])
def test_a_damaged_header_is_reported_with_its_offset(damage: bytes) -> None:
    with pytest.raises(VerificationError, match="malformed archive: member header at offset 8"):
        stored(b"!<arch>\n" + damage)


@pytest.mark.parametrize("label", ["/7", "/99999", "#1/900"])
def test_a_name_that_is_not_there_is_reported(label: str) -> None:
    data = b"!<arch>\n" + member("//", b"x.o/\n\n") + member(label, b"content")
    with pytest.raises(VerificationError, match="malformed archive: member name at offset"):
        stored(data)


def test_a_damaged_archive_is_refused_whatever_the_damage() -> None:
    names = b"a_name_of_more_than_16_bytes.o/\nsecond/\n"
    data = b"!<arch>\n" + member("/", b"xx") + member("//", names)
    data += member("short.o/", b"odd") + member("/0", b"even") + member("#1/4", b"bsd.content")
    assert survives(stored, truncations(data)) > 0
    assert survives(stored, bit_flips(data)) > 0
    assert survives(stored, spliced(data, 500)) > 0


def test_other_files_hold_nothing(tmp_path: Path) -> None:
    for name, content in (("a.txt", b"text offload"), ("a.bc", b"BC\xc0\xde"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        assert read_objects(tmp_path / name) == ()


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError, match="cannot read"):
        read_objects(tmp_path / "missing.o")


def test_a_damaged_object_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.o"
    path.write_bytes(b"\x7fELF\x02\x01\x01" + b"\xff" * 80 + b"offload")
    with pytest.raises(VerificationError, match="malformed ELF file") as caught:
        read_objects(path)
    assert caught.value.location == str(path)
