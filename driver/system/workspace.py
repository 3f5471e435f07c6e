"""Where intermediate files live, and how results come to their place: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from mlir_offload.driver.system.lock_file import locked_temporary_directory, locked_temporary_file
from mlir_offload.toolchain.errors import InputOutputError

_STANDARD_OUTPUT = Path("-")
_PERMISSIONS, _READABLE = 0o777, 0o444
_COPIED_AT_ONCE = 1 << 20


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
        try:
            path = stack.enter_context(locked_temporary_directory(parent or temporary_directory()))
        except OSError as error:
            msg = f"cannot make a temporary directory: {error.strerror or error}"
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
                shutil.copyfileobj(source, target, _COPIED_AT_ONCE)
            status = os.fstat(source.fileno())
            os.fchmod(temporary.descriptor, _mode(output, status.st_mode))
            os.utime(temporary.descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
            temporary.path.replace(output)
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror}"
        raise InputOutputError(
            msg, hint="free some space, or choose another place with -o"
        ) from error


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
        msg = f"cannot write {output}: {error.strerror}"
        hint = "free some space, or choose another place with -o"
        raise InputOutputError(msg, hint=hint) from error


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
        msg = f"cannot write {output}: {error.strerror}"
        raise InputOutputError(msg, hint="choose another place with -o") from error


_PRIVATE = 0o700


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
    # Loading it takes longer than most calls spend here, which only read.
    import tempfile

    file.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
