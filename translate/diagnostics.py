"""From what mlir-opt and mlir-translate print to one error with its place, its reason and its hint."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    MlirOffloadError,
    SourceError,
    ToolchainError,
    ToolFailedError,
)
from mlir_offload.toolchain.process import Completed, describe_status, tool_failed
from mlir_offload.toolchain.tables import load_table

BYTECODE_MAGIC = b"ML\xefR"
_ERROR = re.compile(
    r"^(?P<file>[^\n]*?):(?P<line>\d+)(?::(?P<column>\d+))?: error: (?P<text>.*)$", re.MULTILINE
)
_UNKNOWN_PASS = re.compile(r"'([\w-]+)' does not refer to a registered pass")
_UNKNOWN_OPTION = re.compile(r"no such option (\S+)|Unknown command line argument '([^']+)'")
_PRODUCER = re.compile(r"produced by: (\S+)")
_NO_FILE = frozenset({"<stdin>", "<unknown>", "-", ""})
_CRASH_TEXT = "PLEASE submit a bug report"
_CRASH_STATUS = range(128, 256)
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_LOOK_AT_BYTES = 65536
_MAGIC = (
    (b"\x7fELF", "an ELF object"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"!<arch>\n", "an archive"),
    (b"\x1f\x8b", "a compressed file"),
)

_SHOWN_COLUMNS = 100


class _Rule(Struct, frozen=True):
    pattern: re.Pattern[str]
    snippet: str
    message: str
    hint: str


class _Diagnostic(Struct, frozen=True):
    """The first error that a tool printed, with the source line that it showed."""

    file: str
    line: int
    column: int
    text: str
    snippet: str

    @property
    def location(self) -> str:
        if self.file in _NO_FILE:
            return ""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def check_source(path: Path) -> bytes:
    """Return the content of a program, MLIR text or bytecode.

    Raises InputOutputError where it cannot be read, SourceError where it is empty or something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        hint = (
            "name a .mlir file, not a directory"
            if path.is_dir()
            else "check the name and the permissions"
        )
        raise InputOutputError(msg, hint=hint, location=str(path)) from error
    if not content.strip():
        msg = f"{path} is empty"
        raise SourceError(
            msg, hint="there is nothing to compile: write a program into it", location=str(path)
        )
    if content.startswith(BYTECODE_MAGIC):
        return content
    kind = next((name for magic, name in _MAGIC if content.startswith(magic)), "")
    if kind or _BINARY.search(content, 0, _LOOK_AT_BYTES):
        msg = f"{path} is no MLIR program: it is {kind or 'a binary file'}"
        raise SourceError(msg, hint="give MLIR text or MLIR bytecode", location=str(path))
    return content


def condense(completed: Completed, *, source: Path) -> MlirOffloadError:
    """Return the error that tells why mlir-opt or mlir-translate failed on a part of `source`.

    What it printed stays in the error where the tool, not the program, is to blame.
    """
    diagnostic = _first_error(completed.stderr)
    if _crashed(completed):
        return _crash(completed, diagnostic)
    stopped = _tool_error(completed)
    if stopped is not None:
        return stopped
    if diagnostic is None:
        return tool_failed(completed)
    if diagnostic.file in completed.command.argv and diagnostic.file != str(source):
        return _misread(completed, diagnostic)
    if (producer := _PRODUCER.search(completed.stderr)) or "bytecode version" in diagnostic.text:
        return _foreign_bytecode(completed, source, producer[1] if producer else "another release")
    return _source_error(completed, diagnostic, source)


def _first_error(stderr: str) -> _Diagnostic | None:
    match = _ERROR.search(stderr)
    if match is None:
        return None
    snippet, _, _ = stderr[match.end() + 1 :].partition("\n")
    return _Diagnostic(
        match["file"], int(match["line"]), int(match["column"] or 0), match["text"], snippet
    )


def _crashed(completed: Completed) -> bool:
    status = completed.returncode
    return status < 0 or status in _CRASH_STATUS or _CRASH_TEXT in completed.stderr


def _crash(completed: Completed, diagnostic: _Diagnostic | None) -> ToolFailedError:
    program = completed.command.program
    return ToolFailedError(
        f"internal crash of {program} ({describe_status(completed.returncode)})",
        location=diagnostic.location if diagnostic else "",
        hint="try another release of LLVM with --llvm=MAJOR; run again with -v to see what it printed",
        command=str(completed.command),
        stderr=completed.stderr,
    )


def _place(completed: Completed) -> str:
    """Return which half of the program the command works on."""
    return (
        "a kernel" if any("gpu.module(" in word for word in completed.command.argv) else "host code"
    )


def _tool_error(completed: Completed) -> MlirOffloadError | None:
    """Return the error of a tool that stopped before it came to the program."""
    stderr = completed.stderr
    tool = completed.command.argv[0]
    unknown = _UNKNOWN_PASS.search(stderr)
    if unknown:
        msg = f"{tool} has no pass '{unknown[1]}'"
        hint = (
            "install the mlir-tools package of an LLVM release, or choose another with --llvm=MAJOR"
        )
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


def _misread(completed: Completed, diagnostic: _Diagnostic) -> ToolFailedError:
    """Return the error for an intermediate text that the next tool does not read: a fault of ours."""
    return ToolFailedError(
        f"{completed.command.program} cannot read an intermediate file: {diagnostic.text}",
        location=diagnostic.location,
        hint="report this with the program; -save-temps keeps the file",
        command=str(completed.command),
        stderr=completed.stderr,
    )


def _foreign_bytecode(completed: Completed, source: Path, producer: str) -> CompatibilityError:
    msg = f"{completed.command.argv[0]} cannot read this bytecode: it was written by {producer}"
    hint = "choose that release with --llvm=MAJOR, or give the program as text"
    return CompatibilityError(msg, hint=hint, location=str(source))


def _source_error(completed: Completed, diagnostic: _Diagnostic, source: Path) -> SourceError:
    location = diagnostic.location or str(source)
    for rule in _load_rules():
        match = rule.pattern.search(diagnostic.text)
        if match is None or (rule.snippet and rule.snippet not in diagnostic.snippet):
            continue
        names = {
            "place": _place(completed),
            "quoted": _quoted_operation(diagnostic),
            **match.groupdict(default=""),
        }
        return SourceError(
            rule.message.format(**names), hint=rule.hint.format(**names), location=location
        )
    if _is_at_the_end(diagnostic, source):
        msg = f"the file ends inside a region: {diagnostic.text}"
        return SourceError(msg, hint="close every '{' with '}'", location=location)
    line = diagnostic.snippet.strip()[:_SHOWN_COLUMNS]
    return SourceError(
        diagnostic.text, hint=f"correct this line: {line}" if line else "", location=location
    )


def _is_at_the_end(diagnostic: _Diagnostic, source: Path) -> bool:
    """Return whether the parser wanted an operation behind the last character of the source."""
    if "expected operation name" not in diagnostic.text or diagnostic.file != str(source):
        return False
    try:
        lines = source.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    shown, after = lines[diagnostic.line - 1 : diagnostic.line], lines[diagnostic.line :]
    rest = [*(line[diagnostic.column - 1 :] for line in shown), *after]
    return not any(line.partition("//")[0].strip() for line in rest)


def _quoted_operation(diagnostic: _Diagnostic) -> str:
    found = re.findall(r'"([\w.$-]+)"', diagnostic.snippet[: diagnostic.column])
    return str(found[-1]) if found else "?"


@functools.cache
def _load_rules() -> tuple[_Rule, ...]:
    table = load_table("mlir_offload.translate", "diagnostics")
    return tuple(
        _Rule(
            pattern=re.compile(row["pattern"]),
            snippet=str(row.get("snippet", "")),
            message=str(row["message"]),
            hint=str(row["hint"]),
        )
        for row in table["rules"]
    )
