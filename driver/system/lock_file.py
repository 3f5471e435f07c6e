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
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path

from msgspec import Struct

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BOOT_DIGITS = 8
# A name of 255 bytes, the most of all file systems, leaves no space for what is added.
_LONGEST_NAME_BYTES = 220
_RANDOM_BYTES = 6
_ENDING = ".tmp"
_NONE, _PRIVATE = -1, 0o700


class _Lock(Enum):
    """Who holds a file; unknown where the file system has no locks."""

    OURS = 1
    ANOTHERS = 2
    UNKNOWN = 3


class LockedFile(Struct, frozen=True):
    """A new file next to an output, and its open descriptor: what is written goes through that."""

    path: Path
    descriptor: int


@contextlib.contextmanager
def locked_temporary_file(output: Path) -> Iterator[LockedFile]:
    """Yield an empty file next to an output, to be renamed to it; what is left of it is removed.

    Its name is random, and what killed processes left for the same output goes. Raises OSError where
    it cannot be made.
    """
    prefix = f".{os.fsdecode(os.fsencode(output.name)[:_LONGEST_NAME_BYTES])}.mo-"
    _sweep_files(output.parent, prefix)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    is_locked = False
    while not is_locked:
        # The name is known before there is a file: a signal may come behind any instruction.
        path, descriptor = output.parent / f"{prefix}{_random_word()}{_ENDING}", _NONE
        is_anothers = False
        try:
            descriptor = os.open(path, flags, 0o666)
            # Before it was held, another process may have taken it for a file that is left.
            is_locked = _lock(descriptor) is not _Lock.ANOTHERS and _is_at(descriptor, path)
            if is_locked:
                yield LockedFile(path, descriptor)
        except FileExistsError:
            is_anothers = descriptor == _NONE
            raise
        finally:
            if not is_anothers:
                _discard(path, descriptor)


def _discard(path: Path, descriptor: int) -> None:
    """Remove a file unless it was renamed: its name may be another process's by now."""
    if descriptor == _NONE or _is_at(descriptor, path):
        path.unlink(missing_ok=True)
    if descriptor != _NONE:
        os.close(descriptor)


def _random_word() -> str:
    # The module `secrets` would load hashing before the first program starts.
    return os.urandom(_RANDOM_BYTES).hex()


def _sweep_files(parent: Path, prefix: str) -> None:
    """Remove the files for one output that no living process holds."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for name in [entry.name for entry in entries if entry.name.startswith(prefix)]:
            if name.endswith(_ENDING):
                with contextlib.suppress(OSError):
                    _remove_file_left(parent / name)


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
def locked_temporary_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory that is removed at the end, with those that killed processes left.

    Raises OSError where it cannot be made.
    """
    prefix = f"mlir-offload-{_boot()}-"
    is_locked = False
    while not is_locked:
        # The name is known before there is a directory: a signal may come behind any instruction.
        path, descriptor = parent / f"{prefix}{_random_word()}", _NONE
        try:
            path.mkdir(mode=_PRIVATE)
            # Who removes what is left may be quicker than we open it, or lock it.
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                # Where there are no locks, nobody can take it for a thing that is left.
                is_locked = _lock(descriptor) is not _Lock.ANOTHERS and _is_at(descriptor, path)
            if is_locked:
                yield path
        finally:
            _remove_directory(path, descriptor)
    _sweep(parent, prefix)


def _remove_directory(path: Path, descriptor: int) -> None:
    try:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        # A signal may have ended the first attempt.
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)
        if descriptor != _NONE:
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
