"""The files that one call reads and writes, compared before any tool starts.

A file that is read is never written by the same call, and none is written twice: by another name,
through a link, or as a standard stream, either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.message.report import report
from mlir_offload.driver.option.subcommand import every_subcommand
from mlir_offload.toolchain.errors import UsageError

_STREAM = Path("-")
_HINT = "write to another file"
_LINKER_MAP = "-Wl,-Map"
_CONFIGURATION = "--config="

_Key = tuple[object, ...]


class OutputFile(Struct, frozen=True):
    """A file to write, and the option that names it, or what else it is."""

    path: Path
    option: str


def check_files(inputs: Iterable[Path], outputs: Iterable[OutputFile]) -> None:
    """Raise UsageError if an output is an input, or if two outputs are one file.

    The outputs that every subcommand has are compared too. Files are the same if they have the same
    inode; devices and pipes hold nothing that can be destroyed.
    """
    read: dict[_Key, Path] = {}
    for path in (*report().sources, *inputs):
        key = _key(path)
        if key is not None:
            read.setdefault(key, path)
    written: dict[_Key, OutputFile] = {}
    for output in outputs:
        _add(output, read, written)
    try:
        for output in _message_outputs():
            _add(output, read, written)
    except UsageError:
        # Neither is written at the end of the call, as they are for other errors.
        report().options = replace(report().options, file=None, reproduce=None)
        raise


def check_kept(directory: Path | None, inputs: Iterable[Path]) -> None:
    """Raise UsageError if an input is below the directory of -save-temps, whose files are replaced."""
    if directory is None:
        return
    root = os.path.realpath(directory)
    for path in (*report().sources, *inputs):
        if path != _STREAM and Path(os.path.realpath(path)).is_relative_to(root):
            msg = f"input file '{path}' is in '{directory}', where -save-temps replaces files"
            hint = f"keep them in another directory: -save-temps={directory / 'temps'}"
            raise UsageError(msg, hint=hint)


def _add(output: OutputFile, read: Mapping[_Key, Path], written: dict[_Key, OutputFile]) -> None:
    key = _key(output.path)
    if key is None:
        return
    if key in read:
        raise _same_as_input(read[key], output)
    if key in written:
        raise _same_as_output(written[key], output)
    written[key] = output


def _same_as_input(path: Path, output: OutputFile) -> UsageError:
    named = "" if path == output.path else f" '{output.path}'"
    msg = f"input file '{path}' is the same as output file{named}"
    return UsageError(msg, hint=f"{output.option} names it; {_HINT}")


def _same_as_output(first: OutputFile, second: OutputFile) -> UsageError:
    names = f"'{first.path}'" if first.path == second.path else f"'{first.path}', '{second.path}',"
    msg = f"output file {names} is named twice: by {first.option} and by {second.option}"
    return UsageError(msg, hint=_HINT)


def _message_outputs() -> Iterator[OutputFile]:
    options = report().options
    if options.file is not None:
        yield OutputFile(options.file, "--message-file=")
    if options.reproduce is not None:
        yield OutputFile(options.reproduce, "--reproduce=")


def _key(path: Path) -> _Key | None:
    """Return what identifies a file; None for what no call can destroy."""
    if path == _STREAM:
        return None
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ("path", os.path.realpath(path))
    return ("inode", found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def check_message_outputs(arguments: Sequence[str]) -> None:
    """Raise UsageError if --message-file= or --reproduce= names a file of the command line.

    It also works for a command line that cannot be parsed.
    """
    check_files(map(Path, _named(arguments)), ())


def configuration_files(arguments: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of settings that a command line names."""
    words = (word for word in arguments if word.startswith(_CONFIGURATION))
    return tuple(Path(word.removeprefix(_CONFIGURATION)) for word in words)


def _named(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the words, and the parts of options with values, that may be the names of inputs."""
    before = ""
    outputs = _output_options()
    for word in arguments:
        if before not in outputs:
            if not word.startswith("-"):
                yield word
            elif not word.startswith("-D") and word.partition("=")[0] not in outputs:
                yield from (part for piece in word.split("=")[1:] for part in piece.split(","))
        before = word


def _output_options() -> frozenset[str]:
    """Return the options whose value is an output, whatever the subcommand."""
    rows = (row for one in every_subcommand().values() for row in one.rows if row.path == "output")
    return frozenset((_LINKER_MAP, *(name.rstrip("=") for row in rows for name in row.names)))
