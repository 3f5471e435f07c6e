"""The progress of a build: a bar on a terminal, otherwise only failures."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from mlir_offload.driver.message.escape import shown, shown_lines
from mlir_offload.driver.message.report import report, show, show_step_messages, speaks_to_people
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.project.run import StepOutcome, StepResult


class BuildProgress(Struct):
    """Prints messages about steps, above the bar if there is one."""

    is_verbose: bool
    say: Callable[[str], None] = show
    tell: Callable[[str], None] = show_step_messages
    advance: Callable[[int, str], None] | None = None
    _running: dict[int, str] = field(default_factory=dict)

    def started(self, step: ProjectStep) -> None:
        """Record the start of a step; print its command if verbose."""
        self._running[id(step)] = step.label
        if self.is_verbose:
            self.say(shlex.join(("mlir-offload", *step.action.arguments)))

    def ended(self, result: StepResult) -> None:
        """Report the end of a step, with its messages after its name if it failed."""
        self._running.pop(id(result.step), None)
        if result.outcome is StepOutcome.FAILED:
            self.say(f"mlir-offload: {result.step.label} failed:")
        if result.message.strip():
            self.tell(result.message.rstrip("\n"))
        if self.advance is not None:
            self.advance(result.steps, next(iter(self._running.values()), ""))


@contextlib.contextmanager
def open_progress(steps: int, *, is_verbose: bool) -> Iterator[BuildProgress]:
    """Yield a progress reporter, with a bar only on a terminal."""
    options = report().options
    is_for_people = speaks_to_people() and not options.quiet
    if not is_for_people or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield BuildProgress(is_verbose)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, no_color=not report().has_color)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as bar:
        task = bar.add_task("", total=steps)

        def advance(steps: int, label: str) -> None:
            bar.update(task, advance=steps, description=escape(shown(label)))

        def say(text: str) -> None:
            console.print(shown_lines(text), markup=False, soft_wrap=True)

        yield BuildProgress(is_verbose, say, say, advance)
