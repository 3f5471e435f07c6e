"""Read static libraries: `ar` archives with GNU or BSD names, including thin archives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.byte_view import ByteView

ARCHIVE_MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"
_HEADER_BYTES = 60
_END = b"`\n"
_TABLES = ("/", "/SYM64/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64")
_LONG_NAMES = "//"
_BSD_NAME = "#1/"
_LONGEST_NAME = 1 << 12


class ArchiveMember(Struct, frozen=True):
    """A member: its name and its content; for a thin archive, the path of its file."""

    name: str
    content: ByteView | None
    file: Path | None


def is_archive(view: ByteView) -> bool:
    """Return whether the bytes begin with the magic of an archive."""
    return view.head(8) in (ARCHIVE_MAGIC, THIN_MAGIC)


def iterate_members(view: ByteView) -> Iterator[ArchiveMember]:
    """Yield the members in order; those of a thin archive are not opened.

    Raises VerificationError if a header is corrupt.
    """
    view = view.part(0, view.size, "content", form="archive")
    is_thin = view.head(8) == THIN_MAGIC
    folder = Path(view.location).parent
    names = b""
    offset = 8
    while offset + 1 < view.size:
        label, size = _read_header(view, offset)
        start = offset + _HEADER_BYTES
        is_table = label in _TABLES or label == _LONG_NAMES
        stored = 0 if is_thin and not is_table else size
        content = view.part(start, stored, f"member {label}")
        offset = start + stored + stored % 2
        if label == _LONG_NAMES:
            names = content.whole()
            continue
        name, content = _named(view, label, names, content)
        if "\0" in name:
            raise view.malformed(start - _HEADER_BYTES, "member name", "it contains a NUL byte")
        if name in _TABLES:
            continue
        location = f"{view.location}({name})"
        named = content.part(0, content.size, "member", form="file", location=location)
        yield ArchiveMember(name, None if is_thin else named, folder / name if is_thin else None)


def _read_header(view: ByteView, offset: int) -> tuple[str, int]:
    header = view.read(offset, _HEADER_BYTES, "member header")
    size = header[48:58].strip()
    if header[58:60] != _END or not size.isdigit():
        raise view.malformed(offset, "member header", "it is damaged")
    return header[:16].decode(errors="replace").rstrip("\0").strip(), int(size)


def _is_number(text: str) -> bool:
    """Return whether the text consists of ASCII digits; `int` raises ValueError for others such as ²."""
    return text.isascii() and text.isdecimal()


def _named(view: ByteView, label: str, names: bytes, content: ByteView) -> tuple[str, ByteView]:
    """Return the name of a member and its content; BSD stores long names at the start of the content."""
    if label in _TABLES:
        return label, content
    if label.startswith(_BSD_NAME) and _is_number(label[3:]):
        size = min(int(label[3:]), _LONGEST_NAME)
        name = content.read(0, size, "member name").rstrip(b"\0").decode(errors="replace")
        return name, content.part(size, content.size - size, "member")
    if label.startswith("/") and _is_number(label[1:]):
        start = int(label[1:])
        end = names.find(b"/\n", start, start + _LONGEST_NAME)
        if end < 0:  # Microsoft's tools terminate a name with NUL.
            end = names.find(b"\0", start, start + _LONGEST_NAME)
        if end < 0:
            raise view.malformed(start, "member name", "it is not in the table of long names")
        return names[start:end].decode(errors="replace"), content
    return label.removesuffix("/"), content
