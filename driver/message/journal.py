"""What has been run so far: the steps of a call, and what its failures need to be repeated."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.process import Completed

# An intermediate file that is larger says nothing to a person, and a link may name many.
_MOST_BYTES = 1 << 26


class StepTime(Struct, frozen=True):
    """How long a step took, in seconds of wall time, and when it began after the first."""

    label: str
    start_s: float
    duration_s: float


class ToolRun(Struct, frozen=True):
    """A tool that has run, and what places in its words mean.

    `sources` tells the file of the user for each directory of the workspace.
    """

    completed: Completed
    workspace: Path
    sources: Mapping[Path, Path]


class Step(Struct, frozen=True):
    """A step that came to its end: its argv, what it changes in the environment, its result.

    `reads` and `writes` are the files of a step of ours, which knows them.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    status: int = 0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


class Failure(Struct, frozen=True):
    """A failed tool with the error that was made of it, and the intermediate files that it read."""

    error: MlirOffloadError
    run: ToolRun
    files: Mapping[Path, bytes]


class Journal(Struct):
    """Steps and failures of one call, from several threads."""

    steps: list[Step] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    workspace: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, step: Step) -> None:
        """Keep a step that ran in process."""
        with self._lock:
            self.steps.append(step)

    def note_tool(self, run: ToolRun) -> None:
        """Keep a program that ran."""
        command = run.completed.command
        step = Step(command.argv, command.environment, run.completed.returncode)
        with self._lock:
            self.workspace = run.workspace
            self.steps.append(step)

    def note_failure(self, error: MlirOffloadError, run: ToolRun) -> None:
        """Keep a failure; its intermediate files are read now, for the workspace is soon gone."""
        failure = Failure(error, run, _intermediate_files(run))
        with self._lock:
            self.failures.append(failure)

    def failure_of(self, error: MlirOffloadError) -> Failure | None:
        """Return the failed tool behind an error."""
        return next((failure for failure in self.failures if failure.error is error), None)


def _intermediate_files(run: ToolRun) -> dict[Path, bytes]:
    files: dict[Path, bytes] = {}
    left = _MOST_BYTES
    for word in run.completed.command.argv[1:]:
        path = Path(word.removeprefix("@"))
        if run.workspace not in path.parents or not path.is_file():
            continue
        left -= path.stat().st_size
        if left < 0:
            break
        files[path] = path.read_bytes()
    return files
