"""Print the offload data in files: as a tree, as JSON, or as an HTML page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from mlir_offload.driver.inspect import html as inspect_html
from mlir_offload.driver.inspect import json as inspect_json
from mlir_offload.driver.inspect import mlir, tree
from mlir_offload.driver.message.report import show_error
from mlir_offload.driver.option.checks import OutputFile, check_files
from mlir_offload.driver.option.click_command import PATH, command
from mlir_offload.offload.container.contents import Part, Problem, ProblemKind, all_problems
from mlir_offload.offload.container.file_form import FileForm
from mlir_offload.offload.file.contents_reader import read_contents
from mlir_offload.offload.file.verify import verify_contents
from mlir_offload.toolchain.errors import MlirOffloadError, UsageError, VerificationError
from mlir_offload.toolchain.process import Runner

if TYPE_CHECKING:
    from mlir_offload.driver.inspect.tree import Span

_UNREADABLE = "unreadable"
_STYLES = {"dim": "dim", "bold": "bold", "cyan": "cyan", "red": "bold red"}


@command("inspect", click.Argument(["files"], nargs=-1, type=PATH))
@click.pass_obj
def inspect(  # noqa: PLR0913 (one parameter for each option)
    runner: Runner,
    files: tuple[Path, ...],
    html: Path | None,
    llvm: str,
    *,
    as_json: bool,
    code_hashes: bool,
    print_schema: bool,
) -> int:
    """Show device images, kernels, entries and sections of FILES, and report inconsistencies.

    The format is identified by the content. Exit status 0 if there are no problems, 6 if there is a problem
    in a file, 7 if a file cannot be read.
    """
    if print_schema:
        _write(inspect_json.schema_text())
        return 0
    if not files:
        msg = "inspect needs a file"
        raise UsageError(msg, hint="name objects, libraries, programs, or device images")
    check_files(files, [OutputFile(html, "--html")] if html is not None else [])
    # Hashing a large library takes longer than reading it.
    hashes = _Hashes(of_images=as_json or html is not None or code_hashes, of_code=code_hashes)
    read = [_read(path, llvm, runner, hashes) for path in files]
    parts = [part for part, _ in read]
    if html is not None:
        inspect_html.write_html(parts, html)
    if as_json:
        _write(inspect_json.render_json(parts))
    elif html is None:
        _show_trees(parts)
    return next((status for _, status in read if status), 0) or _status(parts)


def run_inspect(arguments: Sequence[str], runner: Runner) -> int:
    """Run `mlir-offload inspect`; return its exit status. Raises UsageError."""
    try:
        return inspect(arguments, runner)
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does; the interpreter must not flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _Hashes(Struct, frozen=True):
    """Which hashes to compute."""

    of_images: bool
    of_code: bool


def _read(path: Path, llvm: str, runner: Runner, hashes: _Hashes) -> tuple[Part, int]:
    """Return the contents of a file, and 0; or the exit status of the error if it cannot be read."""
    try:
        contents = read_contents(
            path, with_hashes=hashes.of_images, with_code_hashes=hashes.of_code
        )
        part = verify_contents(contents)
        if part.form in (FileForm.MLIR, FileForm.MLIR_BYTECODE):
            part = mlir.with_modules(part, path, llvm, runner)
    except MlirOffloadError as error:
        show_error(error)
        problem = Problem(ProblemKind.UNREADABLE, error.message, error.hint)
        return Part(str(path), _UNREADABLE, 0, None, problems=(problem,)), error.exit_status
    return part, 0


def _status(parts: Iterable[Part]) -> int:
    is_bad = any(True for part in parts for _ in all_problems(part))
    return VerificationError.exit_status if is_bad else 0


def _show_trees(parts: Iterable[Part]) -> None:

    # The error of an unreadable file has been printed.
    readable = (part for part in parts if part.form != _UNREADABLE)
    lines = [line for part in readable for line in tree.tree_lines(part)]
    if sys.stdout.isatty():
        _print_coloured(lines)
    else:
        _write("".join(f"{''.join(text for _, text in line)}\n" for line in lines))


def _print_coloured(lines: Iterable[Sequence[Span]]) -> None:
    """Print in the colors of the terminal; rich detects them and obeys NO_COLOR."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        spans = [(text, _STYLES.get(style, "")) for style, text in line]
        console.print(Text.assemble(*spans), soft_wrap=True)


def _write(text: str) -> None:
    """Write to standard output in its encoding; characters that it lacks are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
