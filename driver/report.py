"""Show errors and notes to a person: the only place that prints."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError

if TYPE_CHECKING:
    from mlir_offload.driver.execute import StepTime

_PROGRAM = "mlir-offload"


def render_error(error: MlirOffloadError, *, verbose: bool = False) -> str:
    """Return `location: error: message` with the cure below; what a tool said only if `verbose`."""
    lines = [f"{error.location or _PROGRAM}: error: {error.message}"]
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    if verbose and isinstance(error, ToolFailedError):
        lines.extend([f"  command: {error.command}", error.stderr.rstrip("\n")])
    return "\n".join(lines)


def render_times(times: Iterable[StepTime]) -> str:
    """Return a line for each step: when it began and how long it took, in milliseconds."""
    rows = [
        f"{step.start_s * 1000:7.0f}  {step.duration_s * 1000:8.0f}  {step.label}"
        for step in sorted(times, key=lambda step: step.start_s)
    ]
    return "\n".join(("  start      time  step (ms)", *rows))


def show_note(text: str) -> None:
    """Print a note on stderr."""
    show(f"{_PROGRAM}: note: {text}")


def show(text: str) -> None:
    """Print on stderr, in one write so that lines of parallel steps do not mix."""
    sys.stderr.write(_printable(text) + "\n")
    sys.stderr.flush()


def _printable(text: str) -> str:
    """Return the text so that a path that is no UTF-8 cannot make printing fail."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
