"""Files and directories that belong to a process for as long as it lives, whoever kills it.

Each is held by a lock of the kernel (flock), which ends with its process. So what has no holder was
left by a process that is gone, and may be taken over or removed. Directories name the boot of the
machine that made them: what another machine left where both see it is for that one to remove.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BOOT_DIGITS = 8


class _Lock(Enum):
    """Who holds a file; unknown where the file system has no locks."""

    OURS = 1
    ANOTHERS = 2
    UNKNOWN = 3


@contextlib.contextmanager
def claimed_beside(output: Path) -> Iterator[Path]:
    """Yield an empty file beside an output, to be renamed to it; what is left of it is removed.

    It has one name for each output, so that what a killed process left is found and removed; where a
    living one holds it, another name is taken. Raises OSError where it cannot be made.
    """
    usual = output.with_name(f".{output.name}.tmp")
    writer = f"{os.uname().nodename}.{os.getpid()}.{threading.get_native_id()}"
    place, descriptor = usual, _claim_file(usual)
    if descriptor is None:
        place = output.with_name(f".{output.name}.{writer}.tmp")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(place, flags, 0o666)
    try:
        yield place
    finally:
        # Renamed, the name may be another process's by now.
        if _is_at(descriptor, place):
            place.unlink(missing_ok=True)
        os.close(descriptor)


def _claim_file(place: Path) -> int | None:
    """Return the descriptor of a new file that is held, None where the name cannot be ours."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for _ in range(2):
        try:
            descriptor = os.open(place, flags, 0o666)
        except FileExistsError:
            with contextlib.suppress(OSError):
                _remove_file_left(place)
            continue
        # Before we held it, another process may have taken it for a thing that is left.
        if _lock(descriptor) is _Lock.OURS and _is_at(descriptor, place):
            return descriptor
        os.close(descriptor)
        break
    return None


def _remove_file_left(place: Path) -> None:
    descriptor = os.open(place, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        # Before we held it, who did may have renamed it to the output.
        if is_file and _lock(descriptor) is _Lock.OURS and _is_at(descriptor, place):
            place.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> _Lock:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _Lock.ANOTHERS
    except OSError:
        return _Lock.UNKNOWN
    return _Lock.OURS


def _is_at(descriptor: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), place.lstat())
    except OSError:
        return False


@contextlib.contextmanager
def claimed_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory that is removed at the end, with those that killed processes left.

    Raises OSError where it cannot be made.
    """
    prefix = f"mlir-offload-{_boot()}-"
    path, descriptor = _make_directory(parent, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
        _sweep(parent, prefix)


def _make_directory(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Who removes what is left may be quicker than we open it, or lock it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            # Where there are no locks, nobody can take it for a thing that is left.
            if _lock(descriptor) is not _Lock.ANOTHERS and _is_at(descriptor, path):
                return path, descriptor
            os.close(descriptor)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of this machine that no living process holds."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for name in [entry.name for entry in entries if entry.name.startswith(prefix)]:
            with contextlib.suppress(OSError):
                _remove_left(parent / name)


def _remove_left(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _lock(descriptor) is _Lock.OURS:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


@cache
def _boot() -> str:
    """Return what names this run of this machine; containers of one kernel share its locks too."""
    try:
        return _BOOT.read_text(encoding="ascii").replace("-", "")[:_BOOT_DIGITS]
    except OSError:
        return os.uname().nodename
