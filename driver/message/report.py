"""Print diagnostics in the requested format. No other module prints to stderr.

Every subcommand takes the options that select the format.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.message import diagnostic as message_diagnostic
from mlir_offload.driver.message import escape, github, rule, sarif
from mlir_offload.driver.message import excerpt as message_excerpt
from mlir_offload.driver.message import json as message_json
from mlir_offload.driver.message import text as message_text
from mlir_offload.driver.message.journal import Journal, ToolRun
from mlir_offload.driver.system import workspace
from mlir_offload.toolchain.errors import (
    MlirOffloadError,
    ToolFailedError,
    UsageError,
    parse_source_location,
)
from mlir_offload.translate import tool_message

if TYPE_CHECKING:
    from mlir_offload.driver.message.diagnostic import Diagnostic


class MessageFormat(StrEnum):
    """The formats of diagnostics."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


class Color(StrEnum):
    """When diagnostics are colored."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class MessageOptions(Struct, frozen=True):
    """The options for diagnostics. With `file`, they are written there in `format`, and to stderr as text."""

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


class Report(Struct):
    """Collects and prints the diagnostics of one invocation.

    `sources` are the response and configuration files that the command line was read from. `words` are the words
    of the command line: diagnostics show source lines only of files that it names. `contents` maps names to what
    was read from standard input.
    """

    options: MessageOptions = field(default_factory=MessageOptions)
    journal: Journal = field(default_factory=Journal)
    sources: tuple[Path, ...] = ()
    words: frozenset[str] = frozenset()
    contents: dict[str, bytes] = field(default_factory=dict)
    has_color: bool = False
    _messages: list[Diagnostic] = field(default_factory=list)
    _seen: set[Diagnostic] = field(default_factory=set)
    _printed: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, options: MessageOptions, environment: Mapping[str, str]) -> None:
        """Begin an invocation and discard the state of the previous one."""
        self.options = options
        self.journal = Journal()
        self.has_color = wants_color(options.color, environment, is_terminal=sys.stderr.isatty())
        self._messages.clear()
        self._seen.clear()
        self._printed.clear()

    @contextlib.contextmanager
    def set_aside(self) -> Iterator[Journal]:
        """Discard what is reported in the block; yield the journal of what runs in it."""
        kept = (self.options, self.journal, self._messages, self._seen)
        self.options, self.journal = MessageOptions(quiet=True), Journal()
        self._messages, self._seen = [], set()
        try:
            yield self.journal
        finally:
            self.options, self.journal, self._messages, self._seen = kept

    @property
    def stream_format(self) -> MessageFormat:
        """Return the format of diagnostics on stderr."""
        return MessageFormat.TEXT if self.options.file else self.options.format

    @property
    def has_messages(self) -> bool:
        """Return whether a diagnostic was added, printed or not."""
        return bool(self._messages)

    def add(self, message: Diagnostic) -> None:
        """Print a diagnostic, unless it is a duplicate, for example from another device."""
        message = self._with_excerpt(message)
        with self._lock:
            if message in self._seen:
                return
            self._seen.add(message)
            self._messages.append(message)
        if not self._is_hidden(message):
            text = _render(message, self.stream_format, has_color=self.has_color)
            if text:
                _print(text)

    def add_error(self, error: Diagnostic, *notes: Diagnostic) -> None:
        """Print an error with its notes as text, the hint last."""
        messages = [self._with_excerpt(message) for message in (error, *notes)]
        with self._lock:
            if messages[0] in self._seen:
                return
            self._seen.update(messages)
            self._messages += messages
        _print(message_text.render_error(messages, has_color=self.has_color))

    def keep(self, messages: Iterable[Diagnostic]) -> None:
        """Add diagnostics to the file or document only: stderr already has them, or omits them."""
        with self._lock:
            complete = map(self._with_excerpt, messages)
            fresh = [message for message in complete if message not in self._seen]
            self._seen.update(fresh)
            self._messages += fresh

    def print_once(self, text: str) -> None:
        """Print the output of a compiler, unless it is a duplicate."""
        with self._lock:
            if text in self._printed:
                return
            self._printed.add(text)
        _print(text)

    def _with_excerpt(self, message: Diagnostic) -> Diagnostic:
        """Return the diagnostic with its source line, unless it has details already."""
        place = message.place
        if place is None or not place.line or message.details:
            return message
        content = self.contents.get(place.file)
        if place.file not in self.words and content is None:
            return message
        place = message_excerpt.with_range(place, content)
        details = message_excerpt.excerpt(place, message.fix, content)
        return replace(message, place=place, details=details)

    def finish(self, status: int) -> None:
        """Write the SARIF document or the message file at the end of the invocation."""
        form, file = self.options.format, self.options.file
        if form is MessageFormat.SARIF:
            text = sarif.render_sarif(self._messages, status)
        else:
            rendered = (_render(message, form, has_color=False) for message in self._messages)
            text = "\n".join(filter(None, rendered))
        if file is not None:
            with workspace.open_output(file) as descriptor:
                os.write(descriptor, f"{text}\n".encode() if text else b"")
        elif form is MessageFormat.SARIF:
            _print(text)

    def _is_hidden(self, message: Diagnostic) -> bool:
        """Return whether stderr omits it: warnings and notes with -q, remarks in text."""
        if message.severity == "remark":
            return self.stream_format is MessageFormat.TEXT
        return self.options.quiet and message.severity != "error"


@functools.cache
def report() -> Report:
    """Return the report of this process."""
    return Report()


def wants_color(color: Color, environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Return whether to use colors, from the option, NO_COLOR, CLICOLOR_FORCE and the terminal."""
    if color is not Color.AUTO:
        return color is Color.ALWAYS
    if environment.get("NO_COLOR"):
        return False
    if environment.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    return is_terminal and environment.get("TERM") != "dumb"


def _render(message: Diagnostic, form: MessageFormat, *, has_color: bool) -> str:
    """Return a diagnostic in a format; empty for SARIF, which is one document for all."""
    if form is MessageFormat.JSON:
        return message_json.render_json(message)
    if form is MessageFormat.GITHUB:
        return github.render_github(message)
    if form is MessageFormat.SARIF:
        return ""
    return message_text.render_text(message, has_color=has_color)


def speaks_to_people() -> bool:
    """Return whether the format is text, whether or not it is written to a file."""
    return report().options.format is MessageFormat.TEXT


def show_step_messages(text: str) -> None:
    """Print the output of a step, which is text or one JSON diagnostic per line."""
    if speaks_to_people():
        show(text)
        return

    for line in text.splitlines():
        message = message_json.parse_message(line)
        if message is None:
            show(message_json.parse_output(line))
        else:
            report().add(message)


def show_error(error: MlirOffloadError) -> None:
    """Print an error and those joined to it; other formats than text also get further messages of its tools."""
    for one in error.every:
        _show_one_error(one)


def _show_one_error(error: MlirOffloadError) -> None:

    current = report()
    failure = current.journal.failure_of(error)
    messages = message_diagnostic.failure_messages(error, failure.run if failure else None)
    if current.stream_format is not MessageFormat.TEXT:
        for message in messages:
            current.add(message)
        return
    if error.printed:
        current.print_once(escape.shown_colors(error.printed.rstrip("\n")))
    else:
        # Text shows only the notes of this error; -v prints the complete output of the tool.
        current.add_error(*messages[: 1 + len(error.notes)])
    current.keep(messages)
    if current.options.verbose and isinstance(error, ToolFailedError):
        show(f"  command: {error.command}\n{error.stderr.rstrip()}")


def show_tool_messages(run: ToolRun) -> None:
    """Print the messages of a tool that succeeded, as far as they concern the user."""
    current = report()
    messages = message_diagnostic.tool_messages(run)
    if current.stream_format is MessageFormat.TEXT and message_diagnostic.is_text_of_clang(
        messages, run
    ):
        current.keep(messages)
        _show_printed(run)
        return
    if not messages and run.completed.command.program.startswith("clang"):
        # What the user has asked for: -H, -mllvm -stats, -Wl,--verbose.
        _show_printed(run)
    for message in messages:
        is_for_machines = (
            not message_diagnostic.concerns_user(message, run) or current.options.verbose
        )
        if current.stream_format is MessageFormat.TEXT and is_for_machines:
            # The message is about an intermediate file, or -v has printed the output already.
            current.keep((message,))
        else:
            current.add(message)


def _show_printed(run: ToolRun) -> None:
    options = report().options
    is_text = report().stream_format is MessageFormat.TEXT
    if is_text and not options.quiet and not options.verbose:
        report().print_once(escape.shown_colors(run.printed.rstrip("\n")))


def show_output(text: str) -> None:
    """Print what a tool wrote to its standard output: lists and dumps, no messages."""
    sys.stdout.write(_printable(text))
    sys.stdout.flush()


def show_note(text: str) -> None:
    """Print a note on stderr."""
    _show_own("note", text)


def show_warning(text: str, location: str) -> None:
    """Print a warning about a file on stderr."""
    _show_own("warning", text, location)


def _show_own(severity: str, text: str, location: str = "") -> None:

    report().add(
        message_diagnostic.Diagnostic(
            tool_message.Severity(severity), text, parse_source_location(location)
        )
    )


def show(text: str) -> None:
    """Print output other than diagnostics on stderr: commands, times, lists."""
    form = report().stream_format
    if form is MessageFormat.JSON:
        _print(message_json.render_output(text))
    elif form is not MessageFormat.SARIF:
        _print(escape.shown_lines(text))


def _print(text: str) -> None:
    """Print with one write, so that lines of parallel steps do not mix."""
    sys.stderr.write(_printable(text) + "\n")
    sys.stderr.flush()


def _printable(text: str) -> str:
    """Return the text with bytes that are not UTF-8 replaced, because printing them would fail."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


Apply = Callable[[MessageOptions, str], MessageOptions]
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
    """Set the format of diagnostics."""
    return replace(options, format=_one_of("--message-format=", value, MessageFormat))


def choose_color(options: MessageOptions, value: str) -> MessageOptions:
    """Set when diagnostics are colored."""
    return replace(options, color=_one_of("-fdiagnostics-color=", value, Color))


def path(option: str, name: str) -> Apply:
    """Set a field to the path in the value of an option. Raises UsageError for an empty value."""

    def apply(options: MessageOptions, value: str) -> MessageOptions:
        if not value:
            msg = f"{option} expects a file name"
            raise UsageError(msg, hint=f"write {option}FILE")
        return replace(options, **{name: Path(value)})  # names checked by the tests

    return apply


def put(**changes: object) -> Apply:
    """Set fields to constants."""
    return lambda options, _: replace(options, **changes)  # as above


def hide_rule(options: MessageOptions, value: str) -> MessageOptions:
    """Disable a rule."""
    return replace(options, hidden_rules=options.hidden_rules | {rule.checked_name("-Wno-", value)})


def raise_rule(options: MessageOptions, value: str) -> MessageOptions:
    """Make the warnings of a rule errors."""
    return replace(
        options, error_rules=options.error_rules | {rule.checked_name("-Werror=", value)}
    )
