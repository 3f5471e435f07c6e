"""Convert errors of linkers, ptxas and nvlink into errors about the user's program (data/tool_errors.yaml)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath

from msgspec import Struct

from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.toolchain import errors
from mlir_offload.toolchain.errors import MlirOffloadError, Note, ToolFailedError, joined
from mlir_offload.toolchain.process import Completed, tool_failed
from mlir_offload.toolchain.skew.rule import rule_said
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate.mlir.symbol import find_symbol
from mlir_offload.translate.tool_message import Severity, ToolMessage, has_crashed, parse_messages

_CLASSES: Mapping[str, type[MlirOffloadError]] = {
    "source": errors.SourceError,
    "usage": errors.UsageError,
    "toolchain": errors.ToolchainError,
    "compatibility": errors.CompatibilityError,
}
# lld prints the source file (from debug information or the symbol table) in one line, the object in the next.
_REFERENCE = re.compile(
    r">>> (?:referenced by|defined at|defined in) (?P<file>.+?)(?::(?P<line>\d+))?(?: \(.*\))?"
)
_OBJECT = re.compile(r">>>\s{2,}(?P<object>\S.*?):?\((?P<part>[^()]*)\)")
_IR_SUFFIXES = (".bc", ".ll")


class _Row(Struct, frozen=True):
    pattern: re.Pattern[str]
    error: type[MlirOffloadError]
    message: str
    hint: str
    defines: bool
    location: str


@functools.cache
def _rows() -> tuple[_Row, ...]:
    return tuple(
        _Row(
            re.compile(row["pattern"]),
            _CLASSES[row["class"]],
            row["message"],
            row["hint"],
            row.get("defines", False),
            row.get("location", ""),
        )
        for row in load_table("mlir_offload.driver", "tool_errors")["rules"]
    )


def explained_error(error: MlirOffloadError, run: ToolRun) -> MlirOffloadError:
    """Return the error in terms of the user's program; unchanged if the tool's messages are not recognized."""
    known = explained(error, run.completed, run.workspace)
    if type(known) is not ToolFailedError or known.rule or known.location:
        return known
    mapped = tool_error(run)
    return known if isinstance(mapped, ToolFailedError) else mapped


def tool_error(run: ToolRun) -> MlirOffloadError:
    """Return errors for the messages of a failed tool; if none is recognized, that the tool failed."""
    completed = run.completed
    if has_crashed(completed) or rule_said(completed.stderr) is not None:
        return tool_failed(completed)
    said = parse_messages(completed.command.program, completed.stderr)
    found = [error for message in said for error in _errors(run, message)]
    return joined(found) if found else tool_failed(completed)


def _errors(run: ToolRun, message: ToolMessage) -> Iterator[MlirOffloadError]:
    if message.severity is not Severity.ERROR:
        return
    for row in _rows():
        match = row.pattern.search(message.text)
        if match is not None:
            yield _error(run, message, row, match)
            return


def _error(run: ToolRun, message: ToolMessage, row: _Row, match: re.Match[str]) -> MlirOffloadError:
    names = {name: _decimal(value or "") for name, value in match.groupdict().items()}
    symbol = names.get("symbol", "") or names.get("extern", "")
    places = list(dict.fromkeys(_places(run, message, symbol, is_definition=row.defines)))
    given = row.location.format(**names)
    if not given and row.error is errors.SourceError:
        given = _only_source(run)
    first, *others = places or [given]
    error = row.error(row.message.format(**names), hint=row.hint.format(**names), location=first)
    if row.defines:
        error.notes = tuple(Note("also defined here", place) for place in others)
    return error


def _decimal(text: str) -> str:
    return str(int(text, 16)) if text.startswith("0x") else text


def _places(
    run: ToolRun, message: ToolMessage, symbol: str, *, is_definition: bool
) -> Iterator[str]:
    """Yield the locations that a linker reported, or else those of the symbol in the sources."""
    find = functools.partial(_in_source, symbol=symbol, is_definition=is_definition)
    details = (*message.details, "")
    references = [
        (place, _OBJECT.fullmatch(after))
        for place, after in zip(map(_REFERENCE.fullmatch, details), details[1:], strict=False)
        if place is not None
    ]
    found = [place for pair in references if (place := _referenced(run, *pair, find))]
    if found:
        yield from found
    elif message.file and Path(message.file).is_file() and not _is_temporary(run, message.file):
        yield message.location
    elif symbol:
        yield from filter(None, map(find, dict.fromkeys(run.sources.values())))


def _referenced(
    run: ToolRun, place: re.Match[str], inside: re.Match[str] | None, find: Callable[[Path], str]
) -> str:
    """Return the location of a reference: from debug information, or that of the symbol in its source."""
    if place["line"]:
        return f"{place['file']}:{place['line']}"
    file = str(inside["object"] if inside else place["file"])
    source = _source_of(run, file)
    if source is not None:
        return find(source) or str(source)
    return "" if inside is None or _is_temporary(run, file) else file


def _in_source(source: Path, symbol: str, *, is_definition: bool) -> str:
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    place = find_symbol(text, symbol, is_definition=is_definition)
    return f"{source}:{place[0]}:{place[1]}" if place else ""


def _source_of(run: ToolRun, file: str) -> Path | None:
    folders = PurePath(file).parents
    return next((source for made, source in run.sources.items() if made in folders), None)


def _is_temporary(run: ToolRun, file: str) -> bool:
    return run.workspace in PurePath(file).parents


def _only_source(run: ToolRun) -> str:
    sources = {str(source) for source in run.sources.values()}
    return sources.pop() if len(sources) == 1 else ""


def explained(error: MlirOffloadError, completed: Completed, workspace: Path) -> MlirOffloadError:
    """Return the error of a failed tool with the rule that its message matches, and the hint of the rule.

    The location is the input that the tool read, if it is a file of the user, outside of the workspace.
    """
    rule = rule_said(completed.stderr) if isinstance(error, ToolFailedError) else None
    if rule is None or error.rule:
        return error
    error.rule, error.hint = rule.name, rule.hint
    if not error.location:
        files = (Path(word) for word in completed.command.argv if word.endswith(_IR_SUFFIXES))
        given = (str(path) for path in files if workspace not in path.parents)
        error.location = next(given, "")
    return error
