"""Where intermediate files live, and how results come to their place: whole or not at all.

Temporary files and directories are each held by a lock of the kernel (flock), which ends with its process. So what
has no holder was left by a process that is gone, and may be taken over or removed. Directories name the boot of the
machine that made them: what another machine left where both see it is for that one to remove.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import InputOutputError

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BOOT_DIGITS = 8
# A name of 255 bytes, the most of all file systems, leaves no space for what is added.
_LONGEST_NAME_BYTES = 220
_RANDOM_BYTES = 6
_ENDING = ".tmp"
_NONE, _PRIVATE, _OWN = -1, 0o700, 0o600
_STANDARD_OUTPUT = Path("-")
_PERMISSIONS, _READABLE = 0o777, 0o444
_COPIED_AT_ONCE = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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


# The directories of this process that are not removed yet.
_made: set[Path] = set()


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
        _made.add(path)
        try:
            path.mkdir(mode=_PRIVATE)
            # Who removes what is left may be quicker than we open it, or lock it.
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, _DIRECTORY)
                # Where there are no locks, nobody can take it for a thing that is left.
                is_locked = _lock(descriptor) is not _Lock.ANOTHERS and _is_at(descriptor, path)
            if is_locked:
                yield path
        finally:
            _remove_directory(path, descriptor)
            _made.discard(path)
    _sweep(parent, prefix)


def remove_directories_left() -> None:
    """Remove the directories of this process whose context a signal left without its end."""
    for path in list(_made):
        remove_tree(path)
        _made.discard(path)


def remove_tree(path: str | Path) -> None:
    """Remove a directory of ours with all that can be removed. `shutil` loads every compression to do it."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)  # noqa: PTH108 (it has no Path)
    with contextlib.suppress(OSError):
        os.rmdir(path)  # noqa: PTH106


def _remove_directory(path: Path, descriptor: int) -> None:
    try:
        remove_tree(path)
    finally:
        # A signal may have ended the first attempt.
        if path.exists():
            remove_tree(path)
        if descriptor != _NONE:
            os.close(descriptor)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of this machine that no living process holds."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for name in [entry.name for entry in entries if entry.name.startswith(prefix)]:
            with contextlib.suppress(OSError):
                _remove_left(parent / name)


def _remove_left(path: Path) -> None:
    descriptor = os.open(path, _DIRECTORY)
    try:
        if _lock(descriptor) is _Lock.OURS:
            remove_tree(path)
    finally:
        os.close(descriptor)


@cache
def _boot() -> str:
    """Return what names this run of this machine; containers of one kernel share its locks too."""
    try:
        return _BOOT.read_text(encoding="ascii").replace("-", "")[:_BOOT_DIGITS]
    except OSError:
        return os.uname().nodename


@contextlib.contextmanager
def open_workspace(save_to: Path | None = None, *, parent: Path | None = None) -> Iterator[Path]:
    """Yield a directory for intermediate files, removed at the end unless `save_to` names it.

    It lies below `parent`, by default where TMPDIR says; what killed processes left there goes too.
    Raises InputOutputError where it cannot be made.
    """
    if save_to is not None:
        make_directory(save_to)
        yield save_to
        return
    with contextlib.ExitStack() as stack:
        where = parent or temporary_directory()
        try:
            path = stack.enter_context(locked_temporary_directory(where))
        except OSError as error:
            msg = f"cannot make a temporary directory in {where}: {error.strerror or error}"
            raise InputOutputError(
                msg, hint="free some space, or set TMPDIR to a writable directory"
            ) from error
        yield path


def temporary_directory() -> Path:
    """Return where TMPDIR says that temporary files lie, or where Python finds a place for them."""
    named = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")  # noqa: S108
    if (
        named.startswith("/")
        and Path(named).is_dir()
        and os.access(named, os.R_OK | os.W_OK | os.X_OK)
    ):
        return Path(named)
    # Loads more than all else of this module, and looks at places that most machines need not.
    import tempfile

    return Path(tempfile.gettempdir())


def make_directory(path: Path) -> None:
    """Make the directory and its parents. Raises InputOutputError where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make the directory {path}: {error.strerror}"
        raise InputOutputError(msg, hint="choose another place") from error


def check_output(output: Path) -> None:
    """Raise InputOutputError early where `output` cannot become a file."""
    if output.is_dir():
        msg = f"cannot write {output}: it is a directory"
        raise InputOutputError(msg, hint=f"name a file, for example -o {output / 'a.out'}")
    parent = output.parent
    if output.exists() and not output.is_file():
        # A device such as /dev/null takes the bytes; its directory need not be ours to write.
        if not os.access(output, os.W_OK):
            msg = f"cannot write {output}: permission denied"
            raise InputOutputError(msg, hint="choose another place with -o")
        return
    if not parent.is_dir():
        msg = f"cannot write {output}: there is no directory {parent}"
        raise InputOutputError(msg, hint=f"make it first: mkdir -p {parent}")
    if not os.access(parent, os.W_OK):
        msg = f"cannot write {output}: the directory {parent} is not writable"
        raise InputOutputError(msg, hint="choose another place with -o")


def publish(made: Path, output: Path) -> None:
    """Bring the finished file `made` to `output` in one rename, so that nobody sees a part of it.

    An output that is there keeps its mode. Raises InputOutputError where the disk is full or
    read-only; nothing is left behind then.
    """
    if not output.parent.is_dir() or (output.exists() and not output.is_file()):
        # A device such as /dev/null takes the bytes; there is nothing to rename.
        _copy_into(made, output)
        return
    try:
        with locked_temporary_file(output) as temporary, made.open("rb") as source:
            with open(temporary.descriptor, "wb", closefd=False) as target:
                while block := source.read(_COPIED_AT_ONCE):
                    target.write(block)
            status = os.fstat(source.fileno())
            os.fchmod(temporary.descriptor, _mode(output, status.st_mode))
            os.utime(temporary.descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
            temporary.path.replace(output)
    except OSError as error:
        raise _unwritten(output, error) from error


def keep_mode(made: Path, output: Path) -> None:
    """Give a finished file the mode of the output that it is to replace, if there is one."""
    made.chmod(_mode(output, made.stat().st_mode))


def _mode(output: Path, made: int) -> int:
    """Return the mode of a new output: that of the old one, if there is one; a program can be run."""
    try:
        mode = stat.S_IMODE(output.stat().st_mode) & _PERMISSIONS
    except OSError:
        return stat.S_IMODE(made)
    may_run = made & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    # Who may read it may run it.
    return mode | ((mode & _READABLE) >> 2 if may_run else 0)


@contextlib.contextmanager
def open_output(output: Path) -> Iterator[int]:
    """Open a file to write `output` into; it gets its name when the block ends without an error.

    `-` is the standard output; a device or a pipe takes the bytes as they come. Raises
    InputOutputError where it cannot be written; nothing is left behind then.
    """
    if output == _STANDARD_OUTPUT:
        yield sys.stdout.fileno()
        return
    is_file = output.is_file() or not output.exists()
    if is_file or output.is_dir():
        check_output(output)
    try:
        with _renamed(output) if is_file else _opened(output) as descriptor:
            yield descriptor
    except OSError as error:
        raise _unwritten(output, error) from error


def _unwritten(output: Path, error: OSError) -> InputOutputError:
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    msg = f"cannot write {output}: {error.strerror}"
    hint = "choose another place with -o"
    return InputOutputError(msg, hint=f"free some space, or {hint}" if is_full else hint)


@contextlib.contextmanager
def _renamed(output: Path) -> Iterator[int]:
    with locked_temporary_file(output) as temporary:
        yield temporary.descriptor
        os.fchmod(temporary.descriptor, _mode(output, os.fstat(temporary.descriptor).st_mode))
        temporary.path.replace(output)


@contextlib.contextmanager
def _opened(output: Path) -> Iterator[int]:
    descriptor = os.open(output, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _copy_into(made: Path, output: Path) -> None:
    try:
        output.write_bytes(made.read_bytes())
    except OSError as error:
        raise _unwritten(output, error) from error


def user_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory of this user for what can be made again (XDG Base Directory)."""
    given = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    # Below a file nothing can be kept, and without a home nothing is.
    place = Path(home, ".cache") if home.startswith("/") else Path(os.devnull)
    return (Path(given) if given.startswith("/") else place) / "mlir-offload"


def replace_file(file: Path, text: str) -> None:
    """Write a file of this user in one rename, with the directories above it."""
    replace_bytes(file, text.encode())


def replace_bytes(file: Path, content: bytes) -> None:
    """Write a file of this user in one rename, with the directories above it."""
    file.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    with locked_temporary_file(file) as temporary:
        os.fchmod(temporary.descriptor, _OWN)
        with open(temporary.descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        temporary.path.replace(file)
