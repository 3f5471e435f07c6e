"""Give inputs of `-x LANG` and standard input (`-`) file names with the extension of their language."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.message.report import report
from mlir_offload.driver.option.command_line import (
    MLIR_SUFFIXES,
    STANDARD_INPUT,
    CompileOptions,
    as_operand,
    check_regular,
)
from mlir_offload.driver.system.workspace import open_workspace
from mlir_offload.toolchain.errors import MlirOffloadError, UsageError

_MLIR, _STDIN = ".mlir", "<stdin>"


@contextlib.contextmanager
def staged_inputs(options: CompileOptions) -> Iterator[CompileOptions]:
    """Yield the options with such inputs replaced by links or copies with the right extension.

    Errors contain the names on the command line. Raises InputOutputError if an input cannot be read.
    """
    endings = dict(options.languages)
    endings = {path: endings.get(path, "") or _default(path) for path in options.inputs}
    with open_workspace() as place:
        names = {
            path: _staged(path, ending, place / str(number))
            for number, (path, ending) in enumerate(endings.items())
            if ending and path.suffix != ending
        }
        try:
            yield _renamed(options, names)
        except MlirOffloadError as error:
            for path, name in names.items():
                shown = _STDIN if path == STANDARD_INPUT else str(path)
                _rename(error, str(name), shown)
            raise


def _rename(error: MlirOffloadError, name: str, shown: str) -> None:
    error.relocate(lambda location: location.replace(name, shown))
    for one in error.every:
        one.message = one.message.replace(name, shown)
        one.printed = one.printed.replace(name, shown)


def _default(path: Path) -> str:
    return _MLIR if path == STANDARD_INPUT else ""


def _staged(path: Path, ending: str, directory: Path) -> Path:
    """Return the new name of an input: a symbolic link, or a copy of standard input."""
    directory.mkdir()
    name = directory / f"{path.stem}{ending}"
    if path == STANDARD_INPUT:
        content = sys.stdin.buffer.read()
        name.write_bytes(content)
        report().contents[_STDIN] = content
    elif str(path) == os.devnull:
        # `-dM -E -x c /dev/null` prints the macros of clang.
        name.touch()
    else:
        check_regular(path)
        name.symlink_to(path.absolute())
    return name


def _renamed(options: CompileOptions, names: Mapping[Path, Path]) -> CompileOptions:
    if names and options.depfile.is_wanted:
        msg = "-MD and -MMD do not support -x and standard input"
        raise UsageError(msg, hint="use a file with the suffix of its language")
    operands = {as_operand(str(path)): str(name) for path, name in names.items()}
    # `#include "..."` must search the directory of the original file, not that of the link.
    folders = [
        word
        for path in names
        if path != STANDARD_INPUT and names[path].suffix not in MLIR_SUFFIXES
        for word in ("-iquote", os.path.abspath(path.parent))  # noqa: PTH100 (links stay as they are)
    ]
    return replace(
        options,
        inputs=tuple(names.get(path, path) for path in options.inputs),
        link_items=tuple(operands.get(item, item) for item in options.link_items),
        compiler_arguments=(*options.compiler_arguments, *folders),
    )
