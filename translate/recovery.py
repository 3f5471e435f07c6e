"""Further errors of a program: mlir-opt stops at the first one that its parser finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain.errors import MlirOffloadError, SourceError, joined
from mlir_offload.toolchain.process import Command, Completed
from mlir_offload.translate.diagnostics import condense
from mlir_offload.translate.mlir.syntax import MLIR

_MOST_ERRORS = 20
_LARGEST_BYTES = 1 << 22
_FUNCTION = re.compile(r"^[ \t]*(?:func|gpu|llvm)\.func\b", re.MULTILINE)
_PIPELINE = "--pass-pipeline"
_NAME = re.compile(r"@([\w$.-]+)")


class _Function(Struct, frozen=True):
    name: str
    start: int
    end: int


def condense_all(
    completed: Completed, *, source: Path, directory: Path, run: Callable[[Command], Completed]
) -> MlirOffloadError:
    """Return the errors of `condense`, and those of the functions that the parser did not reach.

    mlir-opt reads the program again without the functions that are wrong, from a file in the
    directory. What it says of them being missing is not said.
    """
    error = condense(completed, source=source)
    text = _text(source) if isinstance(error, SourceError) else ""
    found, removed, last = [error], [], error
    while text and len(found) < _MOST_ERRORS:
        function = _function_at(text, last.location, source)
        if function is None:
            break
        removed.append(function.name)
        text = _without(text, function)
        again = condense(_parsed(text, completed, source, directory, run), source=source)
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
    """Return what mlir-opt says of a text, as if it were that of the source."""
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


def _function_at(text: str, location: str, source: Path) -> _Function | None:
    """Return the function around a location; None outside of one, or where braces do not match."""
    numbers = re.fullmatch(r":(\d+):(\d+)", location.removeprefix(str(source)))
    if numbers is None:
        return None
    lines = text.splitlines(keepends=True)
    position = sum(map(len, lines[: int(numbers[1]) - 1])) + int(numbers[2]) - 1
    heads = [match for match in _FUNCTION.finditer(text) if match.start() <= position]
    if not heads:
        return None
    start = heads[-1].start()
    brace = text.find("{", heads[-1].end())
    name = _NAME.search(text, start)
    try:
        end = MLIR.closing(text, brace) + 1 if brace >= 0 else start
    except ValueError:
        return None
    if name is None or not start <= position < end:
        return None
    return _Function(name[1], start, end)


def _without(text: str, function: _Function) -> str:
    """Return the text, each character at its place, without a function."""
    blank = re.sub(r"[^\n]", " ", text[function.start : function.end])
    return text[: function.start] + blank + text[function.end :]


def _is_of(error: MlirOffloadError, removed: list[str]) -> bool:
    words = set(re.findall(r"[\w$.-]+", error.message))
    return not words.isdisjoint(removed)
