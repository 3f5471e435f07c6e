"""A common diagnostic type for the driver and the tools that it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.toolchain.errors import (
    MlirOffloadError,
    SourceError,
    SourceLocation,
    ToolFailedError,
    parse_source_location,
)
from mlir_offload.toolchain.process import Completed
from mlir_offload.translate.tool_message import (
    Severity,
    ToolMessage,
    parse_messages,
    source_of_ptx,
)

PROGRAM = "mlir-offload"
# The stage of each tool. clang has several stages, which depend on its arguments.
_STAGES = {
    "mlir-opt": "lower",
    "mlir-translate": "translate",
    "opt": "optimize",
    "ptxas": "assemble",
    "nvlink": "device-link",
    "fatbinary": "device-link",
    "clang-linker-wrapper": "device-link",
    "clang-nvlink-wrapper": "device-link",
    "ld": "link",
    "ld.lld": "link",
    "lld": "link",
    "llvm-ar": "link",
}
_LINKING = frozenset({"link", "device-link"})
_COMPILING = frozenset({"-c", "-S", "-emit-llvm", "-E"})
# Messages of a compiler driver about a program that it ran and that printed the actual error.
_SAYS_NOTHING = re.compile(r"command failed with exit code|^'[\w-]+' failed$")
_RELEASE = re.compile(r"-\d+(?:\.\d+)*$")


class Diagnostic(Struct, frozen=True):
    """One diagnostic. Unknown fields are empty or None.

    `command` is the shell line that runs the tool again; `tool_status` is the tool's exit status, or the negative
    number of a signal. `error_class` and `status` are the error class and the exit status of mlir-offload.
    `rule` is the skew rule; `image` and `kernel` locate the problem in a file. `fix` is a replacement for the
    range of `place`.
    """

    severity: Severity
    text: str
    place: SourceLocation | None = None
    stage: str = ""
    tool: str = PROGRAM
    command: str = ""
    tool_status: int | None = None
    hint: str = ""
    details: tuple[str, ...] = ()
    error_class: str = ""
    status: int | None = None
    rule: str = ""
    image: str = ""
    kernel: str = ""
    fix: str = ""


def tool_stage(completed: Completed, tool: str) -> str:
    """Return the stage of a tool in the build: lower, translate, compile, assemble, link, ..."""
    name = _RELEASE.sub("", tool)
    if name in _STAGES:
        return _STAGES[name]
    program = _RELEASE.sub("", completed.command.program)
    if program.startswith("clang"):
        return "compile" if _COMPILING.intersection(completed.command.argv) else "link"
    return _STAGES.get(program, "")


def tool_messages(run: ToolRun) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of a tool, with locations in the user's files if they are known."""
    completed = run.completed
    return tuple(
        Diagnostic(
            said.severity,
            said.text,
            _place(run, said),
            tool_stage(completed, said.tool),
            said.tool,
            rerun_command(completed),
            completed.returncode,
            # Source lines that mlir-opt shows are the user's; the report adds them as for any other message.
            details=() if said.tool.startswith("mlir-") else said.details,
        )
        for said in parse_messages(completed.command.program, completed.stderr)
        if not _SAYS_NOTHING.search(said.text)
    )


def is_text_of_clang(messages: Sequence[Diagnostic], run: ToolRun) -> bool:
    """Return whether clang printed these messages about the user's C or C++ sources."""
    program = run.completed.command.program
    files = [message.place.file for message in messages if message.place and message.place.line]
    return (
        program.startswith("clang")
        and tool_stage(run.completed, program) == "compile"
        and bool(files)
        and str(run.workspace) not in run.completed.stderr
    )


def rerun_command(completed: Completed) -> str:
    """Return the shell line that runs the tool again, without TMPDIR, which no longer exists."""
    command = completed.command
    kept = tuple(pair for pair in command.environment if pair[0] != "TMPDIR")
    return str(replace(command, environment=kept))


def _place(run: ToolRun, said: ToolMessage) -> SourceLocation | None:
    """Return the location; for an intermediate file that of the user's source, None if unknown."""
    if not said.file:
        return None
    if not _is_within(said.file, run.workspace):
        return SourceLocation(said.file, said.line, said.column)
    found = source_of_ptx(Path(said.file), said.line) if said.file.endswith(".s") else None
    if found is not None:
        return SourceLocation(*found)
    source = _source_of(said.file, run)
    return SourceLocation(str(source)) if source is not None else None


def concerns_user(message: Diagnostic, run: ToolRun) -> bool:
    """Return whether a message is about the user's files or the link, not about an intermediate file."""
    if (message.place is not None and message.place.line) or message.stage in _LINKING:
        return True
    argv = run.completed.command.argv
    return any(str(source) in argv for source in run.sources.values())


def _source_of(file: str, run: ToolRun) -> Path | None:
    folders = PurePath(file).parents
    return next((source for made, source in run.sources.items() if made in folders), None)


def _is_within(file: str, directory: Path) -> bool:
    return directory in PurePath(file).parents


def failure_messages(error: MlirOffloadError, run: ToolRun | None) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of one error: the error, its notes, then other messages of the tool.

    The message of the tool that became the error is not repeated.
    """
    notes = tuple(
        Diagnostic(Severity.NOTE, note.text, parse_source_location(note.location))
        for note in error.notes
    )
    if run is None:
        return (_error_message(error), *notes)
    said = tool_messages(run)
    main = next((m for m in said if _is_same(error, m)), None)
    tool = main or next((m for m in said if m.severity is Severity.ERROR), None)
    completed = run.completed
    message = replace(
        _error_message(error),
        place=parse_source_location(error.location) or (main.place if main else None),
        stage=tool.stage if tool else tool_stage(completed, completed.command.program),
        tool=tool.tool if tool else completed.command.program,
        command=rerun_command(completed),
        tool_status=completed.returncode,
        details=main.details if main else (),
    )
    # If the tool reports source locations, its other errors are separate errors of this invocation.
    is_complete = isinstance(error, SourceError) and not error.printed
    others = (
        other
        for other in said
        if other is not main
        and not (is_complete and other.severity in {Severity.ERROR, Severity.NOTE})
    )
    return (message, *notes, *others)


def _is_same(error: MlirOffloadError, said: Diagnostic) -> bool:
    if said.severity is not Severity.ERROR:
        return False
    return said.text in error.message or (
        said.place is not None and str(said.place) == error.location
    )


def _error_message(error: MlirOffloadError) -> Diagnostic:
    command = error.command if isinstance(error, ToolFailedError) else ""
    return Diagnostic(
        Severity.ERROR,
        error.message,
        parse_source_location(error.location),
        tool=PurePath(shlex.split(command)[0]).name if command else PROGRAM,
        command=command,
        hint=error.hint,
        error_class=error_class(error),
        status=error.exit_status,
        rule=error.rule,
        fix=error.fix,
    )


def error_class(error: MlirOffloadError) -> str:
    """Return the class of an error as one word: source, usage, toolchain, tool-failed, ..."""
    words = re.findall(r"[A-Z][a-z]+", type(error).__name__.removesuffix("Error"))
    return "-".join(words).lower()
