"""Show errors, messages and notes in the form that was asked for: the only place that prints."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.message import diagnostic as message_diagnostic
from mlir_offload.driver.message import excerpt as message_excerpt
from mlir_offload.driver.message import github, sarif
from mlir_offload.driver.message import json as message_json
from mlir_offload.driver.message.escape import shown, shown_colors, shown_lines, shown_message
from mlir_offload.driver.message.journal import Journal, StepTime, ToolRun
from mlir_offload.driver.message.options import Color, MessageFormat, MessageOptions
from mlir_offload.driver.system import workspace
from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError, parse_source_location
from mlir_offload.translate import tool_message

if TYPE_CHECKING:
    from mlir_offload.driver.message.diagnostic import Diagnostic

_PROGRAM = "mlir-offload"
# As clang has them.
_COLORS = {
    "error": "\033[0;1;31m",
    "warning": "\033[0;1;35m",
    "note": "\033[0;1;36m",
    "remark": "\033[0;1;34m",
}
_HINT = "\n  hint: "
_BOLD, _PLAIN, _CARET = "\033[1m", "\033[0m", "\033[0;1;32m"


class Report(Struct):
    """What one call has to say, and how.

    `sources` are the files that its command line was read from: response files, configuration;
    `words` is the command line: of a file that it names, messages show lines. `contents` is what was
    read from standard input.
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
        """Begin a call: forget the one before."""
        self.options = options
        self.journal = Journal()
        self.has_color = wants_color(options.color, environment, is_terminal=sys.stderr.isatty())
        self._messages.clear()
        self._seen.clear()
        self._printed.clear()

    @contextlib.contextmanager
    def set_aside(self) -> Iterator[Journal]:
        """Print and keep nothing of what is reported in the block; give the journal of what runs in it."""
        kept = (self.options, self.journal, self._messages, self._seen)
        self.options, self.journal = MessageOptions(quiet=True), Journal()
        self._messages, self._seen = [], set()
        try:
            yield self.journal
        finally:
            self.options, self.journal, self._messages, self._seen = kept

    @property
    def stream_format(self) -> MessageFormat:
        """Return the form of what goes to stderr."""
        return MessageFormat.TEXT if self.options.file else self.options.format

    @property
    def has_messages(self) -> bool:
        """Return whether anything was reported, shown or not."""
        return bool(self._messages)

    def add(self, message: Diagnostic) -> None:
        """Show a message, unless the same was said before, as for each of several devices."""
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
        """Show an error with its notes as text, the hint last."""
        messages = [self._with_excerpt(message) for message in (error, *notes)]
        with self._lock:
            if messages[0] in self._seen:
                return
            self._seen.update(messages)
            self._messages += messages
        _print(render_error(messages, has_color=self.has_color))

    def keep(self, messages: Iterable[Diagnostic]) -> None:
        """Keep messages for the file alone: on stderr they are said already, or not wanted."""
        with self._lock:
            complete = map(self._with_excerpt, messages)
            fresh = [message for message in complete if message not in self._seen]
            self._seen.update(fresh)
            self._messages += fresh

    def print_once(self, text: str) -> None:
        """Print the text of a compiler, unless it was printed before."""
        with self._lock:
            if text in self._printed:
                return
            self._printed.add(text)
        _print(text)

    def _with_excerpt(self, message: Diagnostic) -> Diagnostic:
        """Return the message with the source line that it is about, if it shows none itself."""
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
        """Write what is written at the end of a call: a document, or the file of messages."""
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
        """Say whether a person shall not see it: -q leaves errors, and remarks are for machines."""
        if message.severity == "remark":
            return self.stream_format is MessageFormat.TEXT
        return self.options.quiet and message.severity != "error"


@functools.cache
def report() -> Report:
    """Return the report of this process."""
    return Report()


def wants_color(color: Color, environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Return whether messages have colours: the option, NO_COLOR, CLICOLOR_FORCE, the terminal."""
    if color is not Color.AUTO:
        return color is Color.ALWAYS
    if environment.get("NO_COLOR"):
        return False
    if environment.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    return is_terminal and environment.get("TERM") != "dumb"


def _ruled(text: str, rule: str) -> str:
    """Return the text with the name of its rule, as clang writes the option of a warning."""
    return f"{text} [{rule}]" if rule else text


def _headline(place: str, severity: str, text: str, *, has_color: bool) -> str:
    place, text = shown(place), shown_message(text)
    if not has_color:
        return f"{place}: {severity}: {text}"
    return f"{_BOLD}{place}: {_COLORS[severity]}{severity}: {_PLAIN}{_BOLD}{text}{_PLAIN}"


def _render(message: Diagnostic, form: MessageFormat, *, has_color: bool) -> str:
    """Return a message in a form; nothing in one that makes a document of all."""
    if form is MessageFormat.JSON:
        return message_json.render_json(message)
    if form is MessageFormat.GITHUB:
        return github.render_github(message)
    if form is MessageFormat.SARIF:
        return ""
    return render_text(message, has_color=has_color)


def render_error(messages: Iterable[Diagnostic], *, has_color: bool = False) -> str:
    """Return an error and its notes as text; the hint of the error is last."""
    parts = [render_text(message, has_color=has_color) for message in messages]
    first, bar, hint = parts[0].rpartition(_HINT)
    return "\n".join((first, *parts[1:])) + bar + hint if bar else "\n".join(parts)


def render_text(message: Diagnostic, *, has_color: bool = False) -> str:
    """Return `location: error: text`, the source line below it, and the hint last."""
    place = str(message.place or _PROGRAM)
    text = _ruled(message.text, message.rule)
    head = _headline(place, message.severity, text, has_color=has_color)
    lines = (_marked(line) if has_color else shown_lines(line) for line in message.details)
    hint = f"{_HINT}{shown(message.hint)}" if message.hint else ""
    return "\n".join((head, *lines)) + hint


def _marked(line: str) -> str:
    """Return a line below a message, a caret in the colour that clang gives it."""
    gutter, bar, mark = line.partition("| ")
    is_mark = bar and not gutter.strip() and not mark.strip(" ^~")
    shown_line = shown_lines(line)
    return f"{gutter}{bar}{_CARET}{mark}{_PLAIN}" if is_mark else shown_line


def render_times(times: Iterable[StepTime]) -> str:
    """Return a line for each step: when it began and how long it took, in milliseconds."""
    rows = [
        f"{step.start_s * 1000:7.0f}  {step.duration_s * 1000:8.0f}  {step.label}"
        for step in sorted(times, key=lambda step: step.start_s)
    ]
    return "\n".join(("  start      time  step (ms)", *rows))


def speaks_to_people() -> bool:
    """Say whether messages are text alone; SARIF and the like go into a file, if not to stderr."""
    return report().options.format is MessageFormat.TEXT


def show_step_messages(text: str) -> None:
    """Show what a step said, which is text, or one message of JSON on each line."""
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
    """Show an error and all others of the call; to machines, also what else its tools said."""
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
        current.print_once(shown_colors(error.printed.rstrip("\n")))
    else:
        # Of the others a person gets the notes of this error, and the rest on request.
        current.add_error(*messages[: 1 + len(error.notes)])
    current.keep(messages)
    if current.options.verbose and isinstance(error, ToolFailedError):
        show(f"  command: {error.command}\n{error.stderr.rstrip()}")


def show_tool_messages(run: ToolRun) -> None:
    """Show what a tool that succeeded has to say of the user's files, or of itself."""
    current = report()
    messages = message_diagnostic.tool_messages(run)
    if current.stream_format is MessageFormat.TEXT and message_diagnostic.is_text_of_clang(
        messages, run
    ):
        current.keep(messages)
        if not current.options.quiet and not current.options.verbose:
            current.print_once(shown_colors(run.printed.rstrip("\n")))
        return
    for message in messages:
        is_for_machines = (
            not message_diagnostic.concerns_user(message, run) or current.options.verbose
        )
        if current.stream_format is MessageFormat.TEXT and is_for_machines:
            # The user did not write that file; -v has printed all anyway.
            current.keep((message,))
        else:
            current.add(message)


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
    """Print on stderr what is not a message: steps, times, lists."""
    form = report().stream_format
    if form is MessageFormat.JSON:
        _print(message_json.render_output(text))
    elif form is not MessageFormat.SARIF:
        _print(shown_lines(text))


def _print(text: str) -> None:
    """Print in one write, so that lines of parallel steps do not mix."""
    sys.stderr.write(_printable(text) + "\n")
    sys.stderr.flush()


def _printable(text: str) -> str:
    """Return the text so that a path that is not UTF-8 cannot make printing fail."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
