"""The identity of a tool by content, which is equal on all hosts with the same package.

Most code of clang and mlir-opt is in shared libraries, so that these belong to the tool. A GNU
build-id identifies the content of an ELF file and is fast to read; a file without one is hashed once.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mlir_offload.driver.system.memo import Memo
from mlir_offload.driver.system.tool_watch import LIBRARY_PLACES, FileIdentity, file_stamp
from mlir_offload.offload.elf import ElfFile, read_elf
from mlir_offload.toolchain.byte_view import CHUNK_BYTES, open_view
from mlir_offload.toolchain.errors import (
    InputOutputError,
    ToolchainError,
    VerificationError,
)

# Results do not depend on libc or on compression libraries.
_OWN_LIBRARY = re.compile(r"lib(?:LLVM|MLIR|clang|lld|LTO|Polly)")
_NOTE = struct.Struct("<III")
_BUILD_ID = 3
_SHORTEST_ID_BYTES = 8
_DYNAMIC = struct.Struct("<qQ")
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29
# A file that was written within this time may change again without a new time stamp.
_SETTLED_NS = 2_000_000_000


def program_identities(
    programs: Iterable[tuple[str, Path]], library_path: Sequence[Path], memo: Memo
) -> tuple[FileIdentity, ...]:
    """Return the identities of programs and of the libraries of their release, each once.

    `library_path` is LD_LIBRARY_PATH. Raises ToolchainError for a missing library, because without it
    different releases could have the same identity.
    """
    found: dict[str, FileIdentity] = {}
    for name, program in programs:
        places = list(library_path)
        waiting = [(name, program)]
        while waiting:
            wanted, path = waiting.pop()
            content, needed, run_path = _read_file(path, memo)
            found[wanted] = FileIdentity(wanted, content, path)
            places.extend(run_path)
            unknown = (library for library in needed if library not in found)
            own = [library for library in unknown if _OWN_LIBRARY.match(library)]
            waiting.extend((library, _library(library, places, program)) for library in own)
    return tuple(found[name] for name in sorted(found))


def content_identity(path: Path, memo: Memo) -> str:
    """Return `build-id:HEX` or `sha256:HEX`. Raises InputOutputError for an unreadable file."""
    return _read_file(path, memo)[0]


def _read_file(path: Path, memo: Memo) -> tuple[str, tuple[str, ...], tuple[Path, ...]]:
    """Return a file's content identity, the libraries that it needs, and the directories of its run path."""
    build_id, entries = "", []
    with open_view(path) as view:
        try:
            elf = read_elf(view)
            build_id, entries = _build_id(elf), list(_dynamic_entries(elf))
        except VerificationError:
            # The file is a script, or a bitcode library.
            pass
    content = f"build-id:{build_id}" if build_id else f"sha256:{_digest(path, memo)}"
    needed = tuple(text for tag, text in entries if tag == _NEEDED)
    run_path = tuple(text for tag, text in entries if tag != _NEEDED)
    return content, needed, tuple(_places(path, run_path))


def _build_id(elf: ElfFile) -> str:
    for section in elf.named(".note.gnu.build-id"):
        view = elf.content(section)
        name_size, size, kind = view.unpack(_NOTE, 0, "note")
        if kind == _BUILD_ID and size >= _SHORTEST_ID_BYTES:
            return view.read(_NOTE.size + (name_size + 3) // 4 * 4, size, "build-id").hex()
    return ""


def _digest(path: Path, memo: Memo) -> str:
    """Return the SHA-256 of a file, cached while its stamp is unchanged."""
    try:
        status = path.stat()
        stamp, subject = file_stamp(status), f"sha256 {path.resolve()}"
        known = memo.find(subject, stamp)
        if known is not None:
            return known
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise InputOutputError(msg, hint="check its permissions") from error
    if abs(time.time_ns() - status.st_ctime_ns) > _SETTLED_NS:
        memo.keep(subject, stamp, digest.hexdigest())
    return digest.hexdigest()


def _places(file: Path, run_path: Iterable[str]) -> Iterator[Path]:
    """Yield the directories of a run path."""
    # $ORIGIN is the directory of the real file, after symbolic links; also try that of the given path.
    origins = dict.fromkeys((str(file.parent), os.path.dirname(os.path.realpath(file))))  # noqa: PTH120
    for text in run_path:
        for place in text.split(":"):
            for origin in origins:
                yield Path(place.replace("$ORIGIN", origin).replace("${ORIGIN}", origin))


def _dynamic_entries(elf: ElfFile) -> Iterator[tuple[int, str]]:
    for section in elf.named(".dynamic"):
        view = elf.content(section)
        for tag, value in view.table(_DYNAMIC, 0, view.size // _DYNAMIC.size, "dynamic section"):
            if tag in {_NEEDED, _RPATH, _RUNPATH}:
                # Only these entries are decoded: the string table of a library has megabytes of other names.
                yield tag, elf.text_of((section.link, value))


def _library(name: str, places: Sequence[Path], program: Path) -> Path:
    for place in (*places, *map(Path, LIBRARY_PLACES)):
        if (place / name).is_file():
            return place / name
    msg = f"{program} needs {name}, which is in none of the usual places"
    hint = "name its directory in LD_LIBRARY_PATH, or build without a cache"
    raise ToolchainError(msg, hint=hint)
