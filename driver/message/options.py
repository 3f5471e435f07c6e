"""Options that every subcommand takes: how to speak, which rules count, and what to keep of a failure."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.skew import rule


class MessageFormat(StrEnum):
    """The forms of messages."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


class Color(StrEnum):
    """When messages have colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class MessageOptions(Struct, frozen=True):
    """How one call speaks; with a `file`, messages of the format go there, and text to stderr."""

    format: MessageFormat = MessageFormat.TEXT
    file: Path | None = None
    color: Color = Color.AUTO
    quiet: bool = False
    verbose: bool = False
    reproduce: Path | None = None
    reproduces_crashes: bool = True
    hidden_rules: frozenset[str] = frozenset()
    error_rules: frozenset[str] = frozenset()
    warnings_are_errors: bool = False


_Choice = TypeVar("_Choice", MessageFormat, Color)


def _one_of(option: str, value: str, kind: type[_Choice]) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        import difflib

        near = difflib.get_close_matches(value, list(kind), n=1)
        msg = f"{option}{value}: unknown value"
        hint = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(kind)}"
        raise UsageError(msg, hint=hint) from None


def choose_format(options: MessageOptions, value: str) -> MessageOptions:
    """Choose the form of messages."""
    return replace(options, format=_one_of("--message-format=", value, MessageFormat))


def choose_color(options: MessageOptions, value: str) -> MessageOptions:
    """Choose when messages have colours."""
    return replace(options, color=_one_of("-fdiagnostics-color=", value, Color))


def choose_file(options: MessageOptions, value: str) -> MessageOptions:
    """Name the file for messages of that form."""
    return replace(options, file=_named("--message-file=", value))


def pack_call(options: MessageOptions, value: str) -> MessageOptions:
    """Name the archive that the call is packed into."""
    return replace(options, reproduce=_named("--reproduce=", value))


def hide_rule(options: MessageOptions, value: str) -> MessageOptions:
    """Hide what a rule finds."""
    return replace(options, hidden_rules=options.hidden_rules | {_rule("-Wno-", value)})


def raise_rule(options: MessageOptions, value: str) -> MessageOptions:
    """Make an error of what a rule finds."""
    return replace(options, error_rules=options.error_rules | {_rule("-Werror=", value)})


def _rule(option: str, name: str) -> str:
    if name in rule.load_rules():
        return name
    msg = f"{option}{name}: there is no such rule"
    raise UsageError(msg, hint="'mlir-offload explain' lists them")


def _named(option: str, value: str) -> Path:
    if not value:
        msg = f"{option} expects a file name"
        raise UsageError(msg, hint=f"write {option}FILE")
    return Path(value)


def be_quiet(options: MessageOptions, _: str) -> MessageOptions:
    """Show neither notes nor warnings."""
    return replace(options, quiet=True)


def always_color(options: MessageOptions, _: str) -> MessageOptions:
    """Use colours always."""
    return replace(options, color=Color.ALWAYS)


def never_color(options: MessageOptions, _: str) -> MessageOptions:
    """Use colours never."""
    return replace(options, color=Color.NEVER)


def pack_no_crash(options: MessageOptions, _: str) -> MessageOptions:
    """Pack nothing when a tool crashes."""
    return replace(options, reproduces_crashes=False)
