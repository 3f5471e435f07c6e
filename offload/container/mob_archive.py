"""The archive of a bundle (`.mob`): an uncompressed tar file that any tar program can unpack.

The writer stores regular files below one directory, sorted, without times, owners or compression, so that
equal contents give equal bytes. The reader accepts the same, also if another tar program repacked it, and
rejects names that could refer to files outside that directory. Nothing is compressed, so no member is larger
than the file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.pattern import pattern

_FORM = "bundle"
_BLOCK = 512
_MAGIC_AT, _MAGIC = 257, b"ustar"
_NAME, _SIZE, _CHECKSUM, _TYPE, _PREFIX = (
    slice(0, 100),
    slice(124, 136),
    slice(148, 156),
    slice(156, 157),
    slice(345, 500),
)
_SIZE_AT, _CHECKSUM_AT, _TYPE_AT = 124, 148, 156
_OCTAL = pattern(rb" *([0-7]{1,12})[ \0]*")
# Names that refer to one file on every system and in every shell.
_PLAIN_NAME = pattern(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_+][A-Za-z0-9_.+-]*)*")
_MOST_MEMBERS = 1 << 16
_DIRECTORY = b"5"
_READ = (b"0", b"\0", _DIRECTORY)
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}
# GNU tar warns about a time of 0.
_TIME = 1


class MobMember(Struct, frozen=True):
    """A file to pack: its content, and whether it is executable."""

    content: bytes
    is_program: bool = False


def serialize_archive(directory: str, members: Mapping[str, MobMember]) -> bytes:
    """Return the archive with the members below a directory of that name."""
    # Imported here because reading does not need it.
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, member in sorted(members.items()):
            info = tarfile.TarInfo(f"{directory}/{name}")
            info.size, info.mtime = len(member.content), _TIME
            info.mode = 0o755 if member.is_program else 0o644
            archive.addfile(info, io.BytesIO(member.content))
    return buffer.getvalue()


def is_tar(view: ByteView) -> bool:
    """Return whether the file is a tar file; of all formats read here, only bundles are."""
    return view.head(_BLOCK)[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def read_archive(view: ByteView) -> dict[str, ByteView]:
    """Return the files by their names below the top directory; the content is not read.

    Raises VerificationError for anything but a bundle: corruption, links, devices, names outside the
    directory, duplicate names.
    """
    view = replace(view, form=_FORM)
    if not is_tar(view):
        raise view.malformed(0, "header", "this is not a tar archive")
    found: dict[str, ByteView] = {}
    top = ""
    for at, path, content in _members(view):
        directory, _, name = path.partition("/")
        if not name:
            raise view.malformed(at, "name", f"{path!r} is not below a directory")
        if top not in {"", directory}:
            raise view.malformed(at, "name", f"{path!r} is not below {top!r}, as the others are")
        if name in found or len(found) == _MOST_MEMBERS:
            reason = f"{path!r} is a duplicate" if name in found else "there are too many files"
            raise view.malformed(at, "name", reason)
        top, found[name] = directory, content
    return found


def _members(view: ByteView) -> Iterator[tuple[int, str, ByteView]]:
    """Yield the regular files with the offsets of their headers."""
    at = 0
    while at < view.size:
        header = view.read(at, _BLOCK, "header")
        if not header.strip(b"\0"):
            return
        _check_checksum(view, at, header)
        size = _number(view, at + _SIZE_AT, header[_SIZE], "size")
        content = view.part(at + _BLOCK, size, "member")
        kind = header[_TYPE]
        if kind not in _READ:
            what = _KINDS.get(kind, f"of type {kind!r}")
            raise view.malformed(at + _TYPE_AT, "type", f"a member is {what}, not a file")
        path = _path(view, at, header)
        if kind != _DIRECTORY:
            yield at, path, content
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK
    raise view.malformed(view.size, "end", "the archive is cut off")


def _check_checksum(view: ByteView, at: int, header: bytes) -> None:
    stored = _number(view, at + _CHECKSUM_AT, header[_CHECKSUM], "checksum")
    blank = header[: _CHECKSUM.start] + b" " * 8 + header[_CHECKSUM.stop :]
    if sum(blank) != stored:
        raise view.malformed(at + _CHECKSUM_AT, "checksum", "it does not match the header")


def _number(view: ByteView, at: int, field: bytes, name: str) -> int:
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise view.malformed(at, name, f"{field!r} is not an octal number")
    return int(match[1], 8)


def _path(view: ByteView, at: int, header: bytes) -> str:
    """Return the validated name of a member, without the leading `./` that some tar programs write."""
    parts = [header[part].partition(b"\0")[0] for part in (_PREFIX, _NAME)]
    path = b"/".join(part for part in parts if part).decode(errors="backslashreplace")
    path = path.removeprefix("./")
    plain = path.removesuffix("/") if header[_TYPE] == _DIRECTORY else path
    if plain and _PLAIN_NAME.fullmatch(plain) is None:
        raise view.malformed(
            at, "name", f"{path!r} could lead out of the bundle, or is not a plain name"
        )
    if not plain and header[_TYPE] != _DIRECTORY:
        raise view.malformed(at, "name", "it is empty")
    return plain
