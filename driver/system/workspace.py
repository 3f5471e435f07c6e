"""Manage temporary files and directories, and write outputs atomically.

Each temporary file or directory is locked (flock) by its process, and the kernel releases the lock when the
process ends. An unlocked one was left by a process that no longer exists, and may be removed. The names of
directories contain the boot ID of the host: on a shared file system, each host removes only its own.
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
# Most file systems limit names to 255 bytes; the rest is for prefix and suffix.
_LONGEST_NAME_BYTES = 220
_RANDOM_BYTES = 6
_ENDING = ".tmp"
_NONE, _PRIVATE, _OWN = -1, 0o700, 0o600
_STANDARD_OUTPUT = Path("-")
_PERMISSIONS, _READABLE = 0o777, 0o444
_COPIED_AT_ONCE = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Lock(Enum):
    """The holder of a lock; unknown if the file system does not support locks."""

    OURS = 1
    ANOTHERS = 2
    UNKNOWN = 3


class LockedFile(Struct, frozen=True):
    """A new file in the directory of an output, and its descriptor, through which it is written."""

    path: Path
    descriptor: int


@contextlib.contextmanager
def locked_temporary_file(output: Path) -> Iterator[LockedFile]:
    """Yield an empty file in the directory of an output, to be renamed to it; otherwise it is removed.

    Its name is random. Files that killed processes left for the same output are removed. Raises OSError.
    """
    prefix = f".{os.fsdecode(os.fsencode(output.name)[:_LONGEST_NAME_BYTES])}.mo-"
    _sweep_files(output.parent, prefix)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    is_locked = False
    while not is_locked:
        # The path is assigned before the file exists: a signal may arrive after any instruction.
        path, descriptor = output.parent / f"{prefix}{_random_word()}{_ENDING}", _NONE
        is_anothers = False
        try:
            descriptor = os.open(path, flags, 0o666)
            # Another process may have removed the file as stale before it was locked.
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
    """Remove a file unless it was renamed; then its name may belong to another process."""
    if descriptor == _NONE or _is_at(descriptor, path):
        path.unlink(missing_ok=True)
    if descriptor != _NONE:
        os.close(descriptor)


def _random_word() -> str:
    # Not `secrets`, which would import hashing modules before the first program starts.
    return os.urandom(_RANDOM_BYTES).hex()


def _sweep_files(parent: Path, prefix: str) -> None:
    """Remove the temporary files of one output that no process locks."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for name in [entry.name for entry in entries if entry.name.startswith(prefix)]:
            if name.endswith(_ENDING):
                with contextlib.suppress(OSError):
                    _remove_file_left(parent / name)


def _remove_file_left(place: Path) -> None:
    descriptor = os.open(place, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        # Before it was locked, its process may have renamed it to the output.
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


# The directories of this process that have not been removed yet.
_made: set[Path] = set()


@contextlib.contextmanager
def locked_temporary_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory, removed at the end; directories of killed processes are removed as well.

    Raises OSError if it cannot be created.
    """
    prefix = f"mlir-offload-{_boot()}-"
    is_locked = False
    while not is_locked:
        # The path is assigned before the directory exists: a signal may arrive after any instruction.
        path, descriptor = parent / f"{prefix}{_random_word()}", _NONE
        _made.add(path)
        try:
            path.mkdir(mode=_PRIVATE)
            # Another process may remove the directory as stale before it is opened or locked.
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, _DIRECTORY)
                # Without lock support, no process removes directories as stale.
                is_locked = _lock(descriptor) is not _Lock.ANOTHERS and _is_at(descriptor, path)
            if is_locked:
                yield path
        finally:
            _remove_directory(path, descriptor)
            _made.discard(path)
    _sweep(parent, prefix)


def remove_directories_left() -> None:
    """Remove directories of this process whose context was not closed because of a signal."""
    for path in list(_made):
        remove_tree(path)
        _made.discard(path)


def remove_tree(path: str | Path) -> None:
    """Remove a directory tree, ignoring errors. Importing `shutil` would load all compression modules."""
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
        # A signal may have interrupted the first attempt.
        if path.exists():
            remove_tree(path)
        if descriptor != _NONE:
            os.close(descriptor)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the temporary directories of this host that no process locks."""
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
    """Return the boot ID of the host; containers of one kernel share it, and its locks."""
    try:
        return _BOOT.read_text(encoding="ascii").replace("-", "")[:_BOOT_DIGITS]
    except OSError:
        return os.uname().nodename


@contextlib.contextmanager
def open_workspace(save_to: Path | None = None, *, parent: Path | None = None) -> Iterator[Path]:
    """Yield a directory for intermediate files, removed at the end unless it is `save_to`.

    It is in `parent`, by default in TMPDIR; directories that killed processes left there are removed.
    Raises InputOutputError if it cannot be created.
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
    """Return the directory for temporary files: that of TMPDIR, or Python's default."""
    named = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")  # noqa: S108
    if (
        named.startswith("/")
        and Path(named).is_dir()
        and os.access(named, os.R_OK | os.W_OK | os.X_OK)
    ):
        return Path(named)
    # Imported only if needed: it takes longer than the other imports of this module together.
    import tempfile

    return Path(tempfile.gettempdir())


def make_directory(path: Path) -> None:
    """Create the directory and its parents. Raises InputOutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make the directory {path}: {error.strerror}"
        raise InputOutputError(msg, hint="choose another place") from error


def check_output(output: Path) -> None:
    """Raise InputOutputError early if `output` cannot be written."""
    if output.is_dir():
        msg = f"cannot write {output}: it is a directory"
        raise InputOutputError(msg, hint=f"name a file, for example -o {output / 'a.out'}")
    parent = output.parent
    if output.exists() and not output.is_file():
        # A device such as /dev/null is written directly; its directory need not be writable.
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
    """Write the finished file `made` to `output` with one rename, so that it is never seen incomplete.

    An existing output keeps its mode. Raises InputOutputError, for example if the disk is full; then no
    temporary file is left.
    """
    if not output.parent.is_dir() or (output.exists() and not output.is_file()):
        # A device such as /dev/null is written directly.
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
    """Set the mode of a finished file to that of the output that it replaces, if there is one."""
    made.chmod(_mode(output, made.stat().st_mode))


def _mode(output: Path, made: int) -> int:
    """Return the mode of a new output: that of the existing one, executable if `made` is."""
    try:
        mode = stat.S_IMODE(output.stat().st_mode) & _PERMISSIONS
    except OSError:
        return stat.S_IMODE(made)
    may_run = made & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    # Everyone who may read it may execute it.
    return mode | ((mode & _READABLE) >> 2 if may_run else 0)


@contextlib.contextmanager
def open_output(output: Path) -> Iterator[int]:
    """Yield a descriptor to write `output`; the file is renamed to it at the end, if there is no error.

    `-` is standard output; a device or a pipe is written directly. Raises InputOutputError; then no
    temporary file is left.
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
    """Return the cache directory of this user (XDG Base Directory)."""
    given = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    # Without a home directory, a path below a file makes every access fail.
    place = Path(home, ".cache") if home.startswith("/") else Path(os.devnull)
    return (Path(given) if given.startswith("/") else place) / "mlir-offload"


def replace_file(file: Path, text: str) -> None:
    """Write a private file of this user atomically; create its directories."""
    replace_bytes(file, text.encode())


def replace_bytes(file: Path, content: bytes) -> None:
    """Write a private file of this user atomically; create its directories."""
    file.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    with locked_temporary_file(file) as temporary:
        os.fchmod(temporary.descriptor, _OWN)
        with open(temporary.descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        temporary.path.replace(file)
