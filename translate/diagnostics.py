"""Convert the messages of mlir-opt and mlir-translate to errors with locations, reasons and hints."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    MlirOffloadError,
    Note,
    SourceError,
    ToolchainError,
    ToolFailedError,
    joined,
)
from mlir_offload.toolchain.pattern import pattern as lazy_pattern
from mlir_offload.toolchain.process import Completed, describe_status, tool_failed
from mlir_offload.toolchain.tables import load_table
from mlir_offload.translate import source_place, tool_message
from mlir_offload.translate.mlir.module import location_of_line

_UNKNOWN_PLACE = lazy_pattern(r"^(?:<\w+>|-):\d+:\d+: error: ", re.MULTILINE)
_UNKNOWN_PASS = lazy_pattern(r"'([\w-]+)' does not refer to a registered pass")
_UNKNOWN_OPTION = lazy_pattern(r"no such option (\S+)|Unknown command line argument '([^']+)'")
_REFUSED_PLUGIN = lazy_pattern(r"Failed to load (?:passes|dialect plugin) from '([^']*)'")
# The parser reports this error at the token after the literal.
_WRONG_LITERAL = "not valid for specified type"
_UNREGISTERED = "unregistered dialect"
_PRODUCER = lazy_pattern(r"produced by: (\S+)")
# Notes that mlir-opt adds to errors: the operation in generic form, which differs from the source, and the list
# of all dialects.
_USELESS_NOTES = ("see current operation", "Available dialects: ")
_GENERIC = lazy_pattern(r'"(?P<op>[a-z_]\w*\.[\w.]+)"\(.*', re.DOTALL)
_CRASH_TEXT = "PLEASE submit a bug report"
_CRASH_STATUS = range(128, 256)
# The minimal similarity of a misspelled name, as for difflib.
_LIKE = 0.7


class _Rule(Struct, frozen=True):
    pattern: re.Pattern[str]
    snippet: str
    message: str
    hint: str
    fix: str
    suggests: bool
    shows_captured: bool


# A second error that MLIR's attribute parser reports after the one that made it fail.
_FOLLOWS = re.compile(r"failed to parse \w+ parameter '\w+' which is to be a `")


def condense(completed: Completed, *, source: Path) -> MlirOffloadError:
    """Return the errors of mlir-opt or mlir-translate in a part of `source`.

    If the cause is the tool and not the program, the error contains the output of the tool.
    """
    has_unknown_place = _UNKNOWN_PLACE.search(completed.stderr) is not None
    said = [
        message
        for message in tool_message.parse_messages(completed.command.program, completed.stderr)
        if message.file or message.line or has_unknown_place
    ]
    diagnostic = next((one for one in said if one.severity is tool_message.Severity.ERROR), None)
    if _crashed(completed):
        return _crash(completed, diagnostic, source)
    stopped = _tool_error(completed)
    if stopped is not None:
        return stopped
    if diagnostic is None:
        return tool_failed(completed)
    if (
        diagnostic.file
        and diagnostic.file in completed.command.argv
        and diagnostic.file != str(source)
    ):
        return _misread(completed, diagnostic)
    if (producer := _PRODUCER.search(completed.stderr)) or "bytecode version" in diagnostic.text:
        return _foreign_bytecode(completed, source, producer[1] if producer else "another release")
    return joined(list(_source_errors(completed, said, source)))


def _source_errors(
    completed: Completed, said: Sequence[tool_message.ToolMessage], source: Path
) -> Iterator[SourceError]:
    """Yield one error for each error message, with the notes that follow it."""
    error = None
    for message in said:
        if message.severity is tool_message.Severity.ERROR:
            if error is not None and _FOLLOWS.search(message.text):
                continue
            if error is not None:
                yield error
            error = _source_error(completed, message, source)
        elif error is not None and message.severity is tool_message.Severity.NOTE:
            error.notes += _notes(message)
    if error is not None:
        yield error


def _notes(message: tool_message.ToolMessage) -> tuple[Note, ...]:
    if message.text.startswith(_USELESS_NOTES) or not message.location:
        return ()
    return (Note(_without_ir(message.text), message.location),)


def _without_ir(text: str) -> str:
    """Replace an operation in generic form by its name."""
    return _GENERIC.sub(lambda match: f"'{match['op']}'", text)


def _crashed(completed: Completed) -> bool:
    status = completed.returncode
    return status < 0 or status in _CRASH_STATUS or _CRASH_TEXT in completed.stderr


def _crash(
    completed: Completed, diagnostic: tool_message.ToolMessage | None, source: Path
) -> ToolFailedError:
    program = completed.command.program
    return ToolFailedError(
        f"internal crash of {program} ({describe_status(completed.returncode)})",
        location=diagnostic.location if diagnostic else str(source),
        hint="try another release of LLVM with --llvm=MAJOR; run again with -v to see what it printed",
        command=str(completed.command),
        stderr=completed.stderr,
    )


def _place(completed: Completed) -> str:
    """Return the part of the program that the command lowers, for messages."""
    return (
        "a kernel" if any("gpu.module(" in word for word in completed.command.argv) else "host code"
    )


def _tool_error(completed: Completed) -> MlirOffloadError | None:
    """Return the error of a tool that failed before it read the program, None for other failures."""
    stderr = completed.stderr
    tool = completed.command.argv[0]
    refused = _REFUSED_PLUGIN.search(stderr)
    if refused:
        msg = f"{tool} cannot load the plugin {refused[1]}"
        hint = "build it against the lowering LLVM (--llvm=MAJOR), with -shared -fPIC -fno-rtti"
        return ToolchainError(msg, hint=hint)
    unknown = _UNKNOWN_PASS.search(stderr)
    if unknown:
        msg = f"{tool} has no pass '{unknown[1]}'"
        hint = f"'{tool} --help' lists the passes; --load-pass-plugin=FILE adds some, --llvm=MAJOR chooses another release"
        return ToolchainError(msg, hint=hint)
    option = _UNKNOWN_OPTION.search(stderr)
    if option:
        msg = f"{tool} does not take {option[1] or option[2]}"
        return CompatibilityError(msg, hint="choose another LLVM release with --llvm=MAJOR")
    opening = re.search(
        r"cannot open (?:in|out)put file '([^']*)': (.*)|No space left on device", stderr
    )
    if opening:
        reason = f"cannot open {opening[1]}: {opening[2]}" if opening[1] else opening[0]
        return InputOutputError(
            reason,
            hint="check the path, the permissions and the free space",
            location=opening[1] or "",
        )
    return None


def _misread(completed: Completed, diagnostic: tool_message.ToolMessage) -> MlirOffloadError:
    """Return the error for an intermediate file that the next tool does not read.

    This is a bug of the driver, unless an operation of a plugin's dialect is left: only the first
    mlir-opt loads plugins.
    """
    left = _left_operation(diagnostic) if _UNREGISTERED in diagnostic.text else None
    if left is not None:
        return left
    return ToolFailedError(
        f"{completed.command.program} cannot read an intermediate file: {diagnostic.text}",
        location=diagnostic.location,
        hint="report this with the program; -save-temps keeps the file",
        command=str(completed.command),
        stderr=completed.stderr,
    )


def _left_operation(diagnostic: tool_message.ToolMessage) -> SourceError | None:
    snippet = next(iter(diagnostic.details), "")
    text = Path(diagnostic.file).read_text(encoding="utf-8", errors="replace")
    location = location_of_line(text, diagnostic.line)
    if not location:
        return None
    operation = _quoted_operation(snippet, diagnostic.column)
    msg = f"no pass has lowered the operation '{operation}' of a dialect plugin"
    hint = "name the passes that lower it: --load-pass-plugin=FILE --pipeline=PASS"
    return SourceError(msg, hint=hint, location=location)


def _foreign_bytecode(completed: Completed, source: Path, producer: str) -> CompatibilityError:
    msg = f"{completed.command.argv[0]} cannot read this bytecode: it was written by {producer}"
    hint = "choose that release with --llvm=MAJOR, or give the program as text"
    return CompatibilityError(msg, hint=hint, location=str(source))


def _source_error(
    completed: Completed, diagnostic: tool_message.ToolMessage, source: Path
) -> SourceError:
    location = diagnostic.location or str(source)
    snippet = next(iter(diagnostic.details), "")
    if diagnostic.text.endswith(_WRONG_LITERAL):
        location = (
            source_place.literal_place(source, diagnostic.line, diagnostic.column) or location
        )
    rule, match = _rule_of(diagnostic.text, snippet)
    # A `return` without a dialect in a region of another operation is caused by a missing brace.
    if rule is None or match is None or match.groupdict().get("op") == "return":
        wrong_brace = source_place.brace_error(diagnostic, source)
        if wrong_brace is not None:
            return wrong_brace
    if rule is None or match is None:
        return SourceError(_without_ir(diagnostic.text), location=location)
    names = {
        "place": _place(completed),
        "quoted": _quoted_operation(snippet, diagnostic.column),
        "value": source_place.word_at(snippet, diagnostic.column),
        **match.groupdict(default=""),
    }
    message = rule.message.format(**names) if rule.message else _without_ir(diagnostic.text)
    near = _nearest(names, source, diagnostic.line) if rule.suggests else ""
    symbol = _nearest_symbol(names.get("symbol", ""), source)
    if rule.shows_captured:
        location = source_place.captured_tensor(source, diagnostic.line) or location
    meant = near or symbol
    hint = f"did you mean '{meant}'?" if meant else rule.hint.format(**names)
    error = SourceError(message, hint=hint, location=location)
    error.tool_location = diagnostic.location
    error.fix = near or rule.fix.format(**names)
    return error


def _nearest(names: Mapping[str, str], source: Path, line: int) -> str:
    """Return the operation or value that a misspelled name may refer to, an empty string for none."""
    if "op" in names:
        return _nearest_operation(names["op"])
    near = difflib.get_close_matches(
        names["value"], source_place.values_before(source, line), 1, _LIKE
    )
    return near[0] if near else ""


def _nearest_symbol(name: str, source: Path) -> str:
    """Return the function or module that a misspelled `@name` may refer to, an empty string for none."""
    if not name:
        return ""
    defined = source_place.defined_symbols(source)
    if f"@{name}" in defined:
        # The symbol exists, but not in a symbol table that the operation can refer to.
        return ""
    near = difflib.get_close_matches(f"@{name}", defined, 1, _LIKE)
    return near[0] if near else ""


def _nearest_operation(name: str) -> str:
    """Return the operation of the same dialect with a similar name, an empty string for none.

    A name without a dialect may belong to any dialect.
    """
    dialect, dot, word = name.partition(".")
    dialects = load_table("mlir_offload.translate", "operations")["dialects"]
    if not dot:
        return next((f"{one}.{name}" for one, words in dialects.items() if name in words), "")
    known = dialects.get(dialect, ())
    # A listed name is not misspelled; another release has the operation.
    near = [] if word in known else difflib.get_close_matches(word, known, n=1, cutoff=_LIKE)
    return f"{dialect}.{near[0]}" if near else ""


def _rule_of(text: str, snippet: str) -> tuple[_Rule | None, re.Match[str] | None]:
    for rule in _load_rules():
        match = rule.pattern.search(text)
        if match is not None and (not rule.snippet or rule.snippet in snippet):
            return rule, match
    return None, None


def _quoted_operation(snippet: str, column: int) -> str:
    found = re.findall(r'"([\w.$-]+)"', snippet[:column])
    return str(found[-1]) if found else "?"


@functools.cache
def _load_rules() -> tuple[_Rule, ...]:
    table = load_table("mlir_offload.translate", "diagnostics")
    return tuple(
        _Rule(
            pattern=re.compile(row["pattern"]),
            snippet=str(row.get("snippet", "")),
            message=str(row.get("message", "")),
            hint=str(row.get("hint", "")),
            fix=str(row.get("fix", "")),
            suggests=bool(row.get("suggests")),
            shows_captured=bool(row.get("shows_captured")),
        )
        for row in table["rules"]
    )
