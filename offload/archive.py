"""Read static libraries (`ar` archives, GNU names, thin ones too)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARCHIVE_MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"
_HEADER_BYTES = 60
_END = b"`\n"
_TABLES = ("/", "/SYM64/")
_LONG_NAMES = "//"


def is_archive(data: bytes) -> bool:
    """Return whether the bytes start as an archive does."""
    return data[:8] in (ARCHIVE_MAGIC, THIN_MAGIC)


def iterate_members(data: bytes, path: Path) -> Iterator[tuple[str, bytes]]:
    """Return name and content of each member; a thin archive's members are read from their files.

    Raises VerificationError where a header is damaged, OSError where a member's file is gone.
    """
    is_thin = data[:8] == THIN_MAGIC
    names = b""
    offset = 8
    while offset + 1 < len(data):
        label, size = _read_header(data, offset, path)
        start = offset + _HEADER_BYTES
        is_table = label in _TABLES or label == _LONG_NAMES
        stored = 0 if is_thin and not is_table else size
        content = data[start : start + stored]
        offset = start + stored + stored % 2
        if label == _LONG_NAMES:
            names = content
        elif not is_table:
            name = _member_name(label, names)
            yield name, (path.parent / name).read_bytes() if is_thin else content


def _read_header(data: bytes, offset: int, path: Path) -> tuple[str, int]:
    header = data[offset : offset + _HEADER_BYTES]
    size = header[48:58].strip()
    if header[58:60] != _END or not size.isdigit():
        msg = f"damaged archive: no member header at offset {offset}"
        raise VerificationError(msg, hint="make the library again with ar", location=str(path))
    return header[:16].decode(errors="replace").strip(), int(size)


def _member_name(label: str, names: bytes) -> str:
    if label.startswith("/") and label[1:].isdigit():
        start = int(label[1:])
        end = names.find(b"/\n", start)
        return names[start : end if end >= 0 else len(names)].decode(errors="replace")
    return label.removesuffix("/")
