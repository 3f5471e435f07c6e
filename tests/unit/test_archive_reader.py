from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.offload.archive import is_archive, iterate_members
from mlir_offload.offload.objects import read_objects
from mlir_offload.toolchain.errors import InputOutputError, VerificationError


def member(name: str, content: bytes, size: int | None = None) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content) if size is None else size:<10}`\n"
    return header.encode() + content + b"\n" * (len(content) % 2)


def test_members_are_read_with_short_and_long_names() -> None:
    names = b"a_name_of_more_than_16_bytes.o/\nsecond/\n"
    data = b"!<arch>\n" + member("/", b"xx") + member("//", names)
    data += member("short.o/", b"odd") + member("/0", b"even") + member("/32", b"")
    assert is_archive(data)
    assert list(iterate_members(data, Path("a.a"))) == [
        ("short.o", b"odd"),
        ("a_name_of_more_than_16_bytes.o", b"even"),
        ("second", b""),
    ]


def test_members_of_a_thin_archive_are_read_from_their_files(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_bytes(b"content")
    data = b"!<thin>\n" + member("//", b"x.o/\n\n") + member("/0", b"", size=7)
    assert list(iterate_members(data, tmp_path / "a.a")) == [("x.o", b"content")]


def test_a_member_of_a_thin_archive_that_is_gone_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.a"
    path.write_bytes(b"!<thin>\n" + member("//", b"x.o/\n\n") + member("/0", b"", size=7))
    with pytest.raises(InputOutputError, match=r"cannot read .*x\.o: No such file"):
        read_objects(path)


@pytest.mark.parametrize("damage", [b"garbage" * 10, member("a.o/", b"xx")[:30]])
def test_a_damaged_header_is_reported_with_its_offset(damage: bytes) -> None:
    with pytest.raises(VerificationError, match="no member header at offset 8"):
        list(iterate_members(b"!<arch>\n" + damage, Path("a.a")))


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
    with pytest.raises(VerificationError, match="damaged ELF file") as caught:
        read_objects(path)
    assert caught.value.location == str(path)
