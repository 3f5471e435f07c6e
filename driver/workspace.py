"""Where intermediate files live, and how results come to their place: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mlir_offload.driver.claim import claimed_beside, claimed_directory
from mlir_offload.toolchain.errors import InputOutputError

_STANDARD_OUTPUT = Path("-")


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
            path = stack.enter_context(claimed_directory(parent or Path(tempfile.gettempdir())))
        except OSError as error:
            msg = f"cannot make a temporary directory: {error.strerror or error}"
            raise InputOutputError(
                msg, hint="free some space, or set TMPDIR to a writable directory"
            ) from error
        yield path


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

    Raises InputOutputError where the disk is full or read-only; nothing is left behind then.
    """
    if not output.parent.is_dir() or (output.exists() and not output.is_file()):
        # A device such as /dev/null takes the bytes; there is nothing to rename.
        _copy_into(made, output)
        return
    try:
        with claimed_beside(output) as beside:
            shutil.copy2(made, beside)
            beside.replace(output)
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror}"
        raise InputOutputError(
            msg, hint="free some space, or choose another place with -o"
        ) from error


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
        with claimed_beside(output) if is_file else contextlib.nullcontext(output) as place:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
            if is_file:
                place.replace(output)
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror}"
        hint = "free some space, or choose another place with -o"
        raise InputOutputError(msg, hint=hint) from error


def _copy_into(made: Path, output: Path) -> None:
    try:
        output.write_bytes(made.read_bytes())
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror}"
        raise InputOutputError(msg, hint="choose another place with -o") from error
