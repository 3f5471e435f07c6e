"""Errors that a user can cause or correct, each with the exit status of its class, and places in files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern

_PLACE = pattern(r"(?P<file>.+?)(?::(?P<line>\d+))?(?::(?P<column>\d+))?", re.DOTALL)


class Note(Struct, frozen=True):
    """What else there is to see of an error, and where."""

    text: str
    location: str


class MlirOffloadError(Exception):
    """Say what is wrong (`message`), where (`location`) and what to do (`hint`).

    `location` is `file`, `file:line` or `file:line:column` as compilers print it; `rule` the rule
    of skew that it breaks, which `mlir-offload explain` tells more of. `notes` name other places of
    the program, `fix` is what replaces the word at the location. `printed` is the text of a compiler
    that a person reads in place of all this. `tool_location` is where a tool found it, if `location` is
    more exact; further errors there are its consequences. `others` are further errors of the same call.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", location: str = "", rule: str = "") -> None:
        """Keep the parts apart so that every output format can show them."""
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
        # A traceback of Python shows them.
        self.__notes__ = [f"hint: {hint}"] if hint else []

    @property
    def every(self) -> tuple[MlirOffloadError, ...]:
        """Return this error and all others of the call."""
        return (self, *self.others)

    def relocate(self, change: Callable[[str], str]) -> None:
        """Change the locations of all errors and notes."""
        for error in self.every:
            error.location = change(error.location)
            error.tool_location = change(error.tool_location)
            error.notes = tuple(Note(note.text, change(note.location)) for note in error.notes)


class SourceError(MlirOffloadError):
    """The input program is wrong, or uses what this target cannot express."""

    exit_status = 1


class UsageError(MlirOffloadError):
    """The command line is wrong."""

    exit_status = 2


class ToolchainError(MlirOffloadError):
    """A tool, library or SDK that the request needs is not installed."""

    exit_status = 3


class CompatibilityError(MlirOffloadError):
    """Two parts exist but do not fit: releases, architectures, formats."""

    exit_status = 4


class ToolFailedError(MlirOffloadError):
    """A child program failed, crashed, or left no usable output."""

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
        """Keep the command as a shell line and all that the program said."""
        super().__init__(message, hint=hint, location=location)
        self.command = command
        self.stderr = stderr


class VerificationError(MlirOffloadError):
    """A result was made but does not hold what it must; it was not kept."""

    exit_status = 6


class InputOutputError(MlirOffloadError):
    """A file cannot be read or written."""

    exit_status = 7


def joined(errors: Sequence[MlirOffloadError]) -> MlirOffloadError:
    """Return the first error with all others, those of one place only once.

    Of failures that are not the user's the first is enough.
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
    """A compiled function failed while it ran: a launch, an allocation, an assertion of a kernel."""

    exit_status = 70


class SourceLocation(Struct, frozen=True):
    """A place in a file, counted from 1; 0 where a number is not known. Columns are bytes.

    `end_column` is that after the last byte of the range.
    """

    file: str
    line: int = 0
    column: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        """Return the place as compilers print it."""
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}" if self.line else self.file


def parse_source_location(location: str) -> SourceLocation | None:
    """Return the place that an error names as `file`, `file:line` or `file:line:column`."""
    match = _PLACE.fullmatch(location)
    if match is None:
        return None
    return SourceLocation(match["file"], int(match["line"] or 0), int(match["column"] or 0))
