"""Find further errors of a program, because the parser of mlir-opt stops at the first one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.toolchain.errors import MlirOffloadError, SourceError, joined
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.translate import diagnostics
from mlir_offload.translate.mlir import symbol as mlir_symbol

_MOST_ERRORS = 20
_LARGEST_BYTES = 1 << 22
_PIPELINE = "--pass-pipeline"


def condense_all(
    completed: Completed, *, source: Path, directory: Path, run: Callable[[Command], Completed]
) -> MlirOffloadError:
    """Return the errors of `condense`, and the errors of functions after the first parse error.

    mlir-opt parses the program again without the invalid functions, from a file in `directory`. Errors
    about the missing functions are dropped.
    """
    error = diagnostics.condense(completed, source=source)
    text = _text(source) if isinstance(error, SourceError) else ""
    found, removed, last = [error], [], error
    while text and len(found) < _MOST_ERRORS:
        function = _function_at(text, last.location, source)
        if function is None:
            break
        removed.append(function.name)
        text = function.removed_from(text)
        again = diagnostics.condense(
            _parsed(text, completed, source, directory, run), source=source
        )
        fresh = [one for one in again.every if not _is_of(one, removed)]
        if not isinstance(again, SourceError) or not fresh:
            break
        found += fresh
        last = fresh[-1]
    return joined(found)


def _parsed(
    text: str,
    completed: Completed,
    source: Path,
    directory: Path,
    run: Callable[[Command], Completed],
) -> Completed:
    """Return the result of parsing a text with mlir-opt, with the name of the source in its messages."""
    rest = directory / "rest.mlir"
    rest.write_text(text, encoding="utf-8", errors="surrogateescape")
    *argv, _, _ = (word for word in completed.command.argv if not word.startswith(_PIPELINE))
    read = (str(rest) if word == str(source) else word for word in argv)
    done = run(Command((*read, "-o", "/dev/null")))
    return replace(
        done, command=completed.command, stderr=done.stderr.replace(str(rest), str(source))
    )


def _text(source: Path) -> str:
    try:
        content = source.read_bytes()
    except OSError:
        return ""
    is_text = b"\0" not in content and len(content) <= _LARGEST_BYTES
    return content.decode("utf-8", "surrogateescape") if is_text else ""


def _function_at(text: str, location: str, source: Path) -> mlir_symbol.FunctionText | None:
    numbers = location.removeprefix(str(source)).split(":")[1:]
    if len(numbers) != len(("line", "column")) or not all(map(str.isdigit, numbers)):
        return None
    return mlir_symbol.find_function(text, *map(int, numbers))


def _is_of(error: MlirOffloadError, removed: list[str]) -> bool:
    return any(f"'{name}'" in error.message or f"@{name}" in error.message for name in removed)
