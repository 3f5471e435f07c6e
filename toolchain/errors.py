"""Errors that a user can cause or correct, with an exit status per class, and source locations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern

_PLACE = pattern(r"(?P<file>.+?)(?::(?P<line>\d+))?(?::(?P<column>\d+))?", re.DOTALL)


class Note(Struct, frozen=True):
    """A secondary message of an error, with its location."""

    text: str
    location: str


class MlirOffloadError(Exception):
    """An error with a `message`, a `location` and a `hint`.

    `location` is `file`, `file:line` or `file:line:column` as compilers print it. `rule` is the ID of
    a compatibility rule, which `mlir-offload explain` describes. `notes` refer to other locations of
    the program; `fix` replaces the word at the location. `printed` is the text of another compiler,
    printed instead of this error in text output. `tool_location` is the location that the tool
    reported, if `location` is more exact; other errors at that location are consequences of this one.
    `others` are further errors of the same invocation.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", location: str = "", rule: str = "") -> None:
        """Store the parts separately for the output formats."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        self.rule = rule
        self.notes: tuple[Note, ...] = ()
        self.fix = ""
        self.printed = ""
        self.tool_location = ""
        self.others: tuple[MlirOffloadError, ...] = ()
        # Python tracebacks print these.
        self.__notes__ = [f"hint: {hint}"] if hint else []

    @property
    def every(self) -> tuple[MlirOffloadError, ...]:
        """Return this error followed by `others`."""
        return (self, *self.others)

    def relocate(self, change: Callable[[str], str]) -> None:
        """Change the locations of all errors and notes."""
        for error in self.every:
            error.location = change(error.location)
            error.tool_location = change(error.tool_location)
            error.notes = tuple(Note(note.text, change(note.location)) for note in error.notes)


class SourceError(MlirOffloadError):
    """The input program is invalid, or uses a feature that the target does not support."""

    exit_status = 1


class UsageError(MlirOffloadError):
    """The command line is wrong."""

    exit_status = 2


class ToolchainError(MlirOffloadError):
    """A required tool, library or SDK is not installed."""

    exit_status = 3


class CompatibilityError(MlirOffloadError):
    """Two parts are incompatible: releases, architectures or formats."""

    exit_status = 4


class ToolFailedError(MlirOffloadError):
    """A child program failed, crashed, or produced no usable output."""

    exit_status = 5

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        location: str = "",
        command: str = "",
        stderr: str = "",
    ) -> None:
        """Store the command as a shell line, and the standard error of the program."""
        super().__init__(message, hint=hint, location=location)
        self.command = command
        self.stderr = stderr


class VerificationError(MlirOffloadError):
    """The verification of an output failed; the output was removed."""

    exit_status = 6


class InputOutputError(MlirOffloadError):
    """A file cannot be read or written."""

    exit_status = 7


def joined(errors: Sequence[MlirOffloadError]) -> MlirOffloadError:
    """Return the first error with the others in `others`, one error per location.

    Further failures of tools are dropped, because they are not errors of the user.
    """
    distinct: dict[tuple[str, str], MlirOffloadError] = {}
    for error in (one for several in errors for one in several.every):
        place = error.tool_location or error.location
        is_exact = place.count(":") > 1
        key = (place, "" if is_exact else error.message)
        distinct.setdefault(key, error)
    first, *others = distinct.values()
    first.others = tuple(one for one in others if not isinstance(one, ToolFailedError))
    return first


class MlirOffloadRuntimeError(MlirOffloadError, RuntimeError):
    """A compiled function failed at run time: a launch, an allocation, an assertion in a kernel."""

    exit_status = 70


class SourceLocation(Struct, frozen=True):
    """A location in a file. Lines and columns start at 1, 0 means unknown. Columns are bytes.

    `end_column` is the column after the last byte of the range.
    """

    file: str
    line: int = 0
    column: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        """Return the location as compilers print it."""
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}" if self.line else self.file


def parse_source_location(location: str) -> SourceLocation | None:
    """Parse a location of the form `file`, `file:line` or `file:line:column`."""
    match = _PLACE.fullmatch(location)
    if match is None:
        return None
    return SourceLocation(match["file"], int(match["line"] or 0), int(match["column"] or 0))
