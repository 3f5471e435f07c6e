"""The archive of a bundle: equal content gives equal bytes, and no path escapes its directory."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from support.hostile import assert_bounded, bit_flips, spliced, survives, truncations

from mlir_offload.offload.container.mob_archive import MobMember, read_archive, serialize_archive
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.errors import VerificationError

MEMBERS = {
    "manifest.json": MobMember(b"{}"),
    "host/0-k.ll": MobMember(b"x" * 700),
    "link.sh": MobMember(b"", is_program=True),
}


def archive() -> bytes:
    return serialize_archive("k", MEMBERS)


def read(data: bytes) -> dict[str, ByteView]:
    return read_archive(memory_view(data))


def packed(*infos: tarfile.TarInfo, form: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as made:
        for info in infos:
            made.addfile(info, io.BytesIO(bytes(info.size)))
    return buffer.getvalue()


def file_named(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_what_is_written_is_read() -> None:
    found = read(archive())
    assert {name: view.whole() for name, view in found.items()} == {
        name: member.content for name, member in MEMBERS.items()
    }


def test_members_are_in_order_without_time_or_owner() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive())) as made:
        members = made.getmembers()
    assert [member.name for member in members] == ["k/host/0-k.ll", "k/link.sh", "k/manifest.json"]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(1, 0, 0, "", "")}
    assert [oct(member.mode) for member in members] == ["0o644", "0o755", "0o644"]
    assert serialize_archive("k", dict(reversed(MEMBERS.items()))) == archive()


def test_any_tar_unpacks_it_and_what_another_tar_packs_is_read(tmp_path: Path) -> None:
    (tmp_path / "k.mob").write_bytes(archive())
    done = subprocess.run(
        ["tar", "xvf", "k.mob"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    subprocess.run(["tar", "cf", "again.mob", "./k"], cwd=tmp_path, check=True)
    assert set(read((tmp_path / "again.mob").read_bytes())) == set(MEMBERS)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (file_named("k/../../x"), "could lead out"),
        (file_named("/k/x"), "could lead out"),
        (file_named("k/-rf"), "could lead out"),
        (file_named("k/a b"), "could lead out"),
        (file_named("k/.profile"), "could lead out"),
        (file_named("k/a//b"), "could lead out"),
        (file_named("k/\u202e"), "could lead out"),
        (file_named("k"), "not below a directory"),
        (file_named("other/x"), "not below 'k'"),
        (file_named("k/x", tarfile.SYMTYPE, "/etc/passwd"), "a symbolic link"),
        (file_named("k/x", tarfile.LNKTYPE, "k/y"), "a hard link"),
        (file_named("k/x", tarfile.CHRTYPE), "a device"),
        (file_named("k/x", tarfile.FIFOTYPE), "a pipe"),
        (file_named("k/" + "x" * 120), "of type b'L'"),
        (file_named("k/first"), "is a duplicate"),
    ],
    ids=lambda value: repr(value.name) if isinstance(value, tarfile.TarInfo) else value,
)
def test_what_could_reach_beyond_its_directory_is_refused(info: tarfile.TarInfo, said: str) -> None:
    with pytest.raises(VerificationError, match=said):
        read(packed(file_named("k/first"), info))


def test_pax_headers_are_refused() -> None:
    info = file_named("k/x")
    info.pax_headers = {"path": "../../x"}
    with pytest.raises(VerificationError, match="type"):
        read(packed(info, form=tarfile.PAX_FORMAT))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a tar"),
        (b"x" * 512, "not a tar"),
        (archive()[:512], "member at offset"),
        (archive()[:1700], "header at offset 1536"),
        (archive()[:1536], "cut off"),
    ],
    ids=["empty", "text", "without content", "in a header", "between members"],
)
def test_what_is_no_whole_archive_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(VerificationError, match=said):
        read(data)


def test_a_size_beyond_the_file_is_refused_by_its_place() -> None:
    data = bytearray(archive())
    data[124:136] = b"77777777777\0"
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data[:512])
    with pytest.raises(VerificationError, match="member at offset 512"):
        read(bytes(data))


def test_no_damage_brings_it_down() -> None:
    data = archive()
    variants = [*truncations(data, 61), *bit_flips(data[:1024], 7), *spliced(data, 200)]
    assert survives(read, iter(variants)) > 0


def test_memory_does_not_grow_with_the_content() -> None:
    large = serialize_archive("k", {"x": MobMember(bytes(32 << 20))})
    assert_bounded(read, large, 0.0)
