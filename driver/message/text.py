"""Diagnostics as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlir_offload.driver.message.escape import shown, shown_lines, shown_message

if TYPE_CHECKING:
    from mlir_offload.driver.message.diagnostic import Diagnostic
    from mlir_offload.driver.message.journal import StepTime

_PROGRAM = "mlir-offload"
# The colors of clang.
_COLORS = {
    "error": "\033[0;1;31m",
    "warning": "\033[0;1;35m",
    "note": "\033[0;1;36m",
    "remark": "\033[0;1;34m",
}
_HINT = "\n  hint: "
_BOLD, _PLAIN, _CARET = "\033[1m", "\033[0m", "\033[0;1;32m"


def render_error(messages: Iterable[Diagnostic], *, has_color: bool = False) -> str:
    """Return an error and its notes as text; the hint of the error comes last."""
    parts = [render_text(message, has_color=has_color) for message in messages]
    first, bar, hint = parts[0].rpartition(_HINT)
    return "\n".join((first, *parts[1:])) + bar + hint if bar else "\n".join(parts)


def render_text(message: Diagnostic, *, has_color: bool = False) -> str:
    """Return `location: error: text`, then the details such as the source line, then the hint."""
    place = str(message.place or _PROGRAM)
    text = _ruled(message.text, message.rule)
    head = _headline(place, message.severity, text, has_color=has_color)
    lines = (_marked(line) if has_color else shown_lines(line) for line in message.details)
    hint = f"{_HINT}{shown(message.hint)}" if message.hint else ""
    return "\n".join((head, *lines)) + hint


def _marked(line: str) -> str:
    """Return a detail line; a line with a caret gets clang's color for it."""
    gutter, bar, mark = line.partition("| ")
    is_mark = bar and not gutter.strip() and not mark.strip(" ^~")
    shown_line = shown_lines(line)
    return f"{gutter}{bar}{_CARET}{mark}{_PLAIN}" if is_mark else shown_line


def render_times(times: Iterable[StepTime]) -> str:
    """Return a line for each step: its start time and its duration, in milliseconds."""
    rows = [
        f"{step.start_s * 1000:7.0f}  {step.duration_s * 1000:8.0f}  {step.label}"
        for step in sorted(times, key=lambda step: step.start_s)
    ]
    return "\n".join(("  start      time  step (ms)", *rows))


def _ruled(text: str, rule: str) -> str:
    """Return the text followed by the name of its rule, as clang appends the option of a warning."""
    return f"{text} [{rule}]" if rule else text


def _headline(place: str, severity: str, text: str, *, has_color: bool) -> str:
    place, text = shown(place), shown_message(text)
    if not has_color:
        return f"{place}: {severity}: {text}"
    return f"{_BOLD}{place}: {_COLORS[severity]}{severity}: {_PLAIN}{_BOLD}{text}{_PLAIN}"
