"""Options that every verb takes: how to speak, which rules count, and what to keep of a failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.toolchain.errors import UsageError


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


_Apply = Callable[[MessageOptions, str], MessageOptions]
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


def _format(options: MessageOptions, value: str) -> MessageOptions:
    return replace(options, format=_one_of("--message-format=", value, MessageFormat))


def _color(options: MessageOptions, value: str) -> MessageOptions:
    return replace(options, color=_one_of("-fdiagnostics-color=", value, Color))


def _message_file(options: MessageOptions, value: str) -> MessageOptions:
    return replace(options, file=_named("--message-file=", value))


def _reproduce(options: MessageOptions, value: str) -> MessageOptions:
    return replace(options, reproduce=_named("--reproduce=", value))


def _hide_rule(options: MessageOptions, value: str) -> MessageOptions:
    return replace(options, hidden_rules=options.hidden_rules | {_rule("-Wno-", value)})


def _rule_as_error(options: MessageOptions, value: str) -> MessageOptions:
    return replace(options, error_rules=options.error_rules | {_rule("-Werror=", value)})


def _rule(option: str, name: str) -> str:
    from mlir_offload.toolchain.skew.rule import load_rules

    if name in load_rules():
        return name
    msg = f"{option}{name}: there is no such rule"
    raise UsageError(msg, hint="'mlir-offload explain' lists them")


def _named(option: str, value: str) -> Path:
    if not value:
        msg = f"{option} names no file"
        raise UsageError(msg, hint=f"write {option}FILE")
    return Path(value)


_FLAGS: Mapping[str, _Apply] = {
    "-q": lambda options, _: replace(options, quiet=True),
    "-fcolor-diagnostics": lambda options, _: replace(options, color=Color.ALWAYS),
    "-fdiagnostics-color": lambda options, _: replace(options, color=Color.ALWAYS),
    "-fno-color-diagnostics": lambda options, _: replace(options, color=Color.NEVER),
    "-fno-crash-diagnostics": lambda options, _: replace(options, reproduces_crashes=False),
}
_JOINED: Mapping[str, _Apply] = {
    "--message-format=": _format,
    "--message-file=": _message_file,
    "--reproduce=": _reproduce,
    "-fdiagnostics-color=": _color,
}


# What follows is a rule here only if it is spelled as one is; else it is an option of clang.
_RULES: Mapping[str, _Apply] = {"-Wno-": _hide_rule, "-Werror=": _rule_as_error}
_RULE = re.compile(r"(-Wno-|-Werror=)([A-Z]{2,4}\d{3})")


def known_options() -> tuple[str, ...]:
    """Return the options that every verb takes, those with a value ending in `=`."""
    return (*_FLAGS, *_JOINED, *_RULES)


def take_message_options(
    arguments: Sequence[str],
) -> tuple[MessageOptions, tuple[str, ...]]:
    """Return how to speak, and the other arguments. What stands behind `--` is nobody's option.

    Raises UsageError for an unknown value.
    """
    options = MessageOptions()
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += (word, *words)
            break
        applied = _applied(options, word)
        if applied is None:
            rest.append(word)
        else:
            options = applied
    # These are the compiler's too.
    options = replace(options, verbose="-v" in rest, warnings_are_errors="-Werror" in rest)
    return options, tuple(rest)


def _applied(options: MessageOptions, word: str) -> MessageOptions | None:
    if word in _FLAGS:
        return _FLAGS[word](options, "")
    rule = _RULE.fullmatch(word)
    if rule is not None:
        return _RULES[rule[1]](options, rule[2])
    name, sign, value = word.partition("=")
    apply = _JOINED.get(name + sign)
    return apply(options, value) if apply else None
