"""Errors that a user can cause or correct, each with the exit status of its class."""

from __future__ import annotations

from typing import ClassVar


class MlirOffloadError(Exception):
    """Say what is wrong (`message`), where (`location`) and what to do (`hint`).

    `location` is `file`, `file:line` or `file:line:column` as compilers print it; `rule` the rule
    of skew that it breaks, which `mlir-offload explain` tells more of.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", location: str = "", rule: str = "") -> None:
        """Keep the parts apart so that every output format can show them."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        self.rule = rule
        if hint:
            self.add_note(f"hint: {hint}")  # a traceback of Python shows it


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
