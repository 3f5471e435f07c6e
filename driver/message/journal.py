"""A log of one invocation: its steps, and the data needed to reproduce its failures."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.process import Completed

# The limit for all intermediate files of a failure; a link may read many, and larger ones do not help.
_MOST_BYTES = 1 << 26


class StepTime(Struct, frozen=True):
    """The wall time of a step in seconds, and its start after that of the first step."""

    label: str
    start_s: float
    duration_s: float


class ToolRun(Struct, frozen=True):
    """A tool that has run, with the data to map its messages to the user's files.

    `sources` maps a directory of the workspace to the user's file. `printed` is the output with colors.
    """

    completed: Completed
    workspace: Path
    sources: Mapping[Path, Path]
    printed: str = ""


class Step(Struct, frozen=True):
    """A step that ended: its argv, its changes of the environment, its exit status.

    `reads` and `writes` are the files of a step that ran in process.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    status: int = 0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


class Failure(Struct, frozen=True):
    """A failed tool, the error for it, and the intermediate files that it read."""

    error: MlirOffloadError
    run: ToolRun
    files: Mapping[Path, bytes]


class Journal(Struct):
    """The steps and failures of one invocation. Thread-safe."""

    steps: list[Step] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    workspace: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, step: Step) -> None:
        """Add a step that ran in process."""
        with self._lock:
            self.steps.append(step)

    def note_tool(self, run: ToolRun) -> None:
        """Add a program that ran."""
        command = run.completed.command
        step = Step(command.argv, command.environment, run.completed.returncode)
        with self._lock:
            self.workspace = run.workspace
            self.steps.append(step)

    def note_failure(self, error: MlirOffloadError, run: ToolRun) -> None:
        """Add a failure. Its intermediate files are read at once, before the workspace is removed."""
        failure = Failure(error, run, _intermediate_files(run))
        with self._lock:
            self.failures.append(failure)

    def failure_of(self, error: MlirOffloadError) -> Failure | None:
        """Return the failure of the tool that caused an error."""
        own = (failure for failure in self.failures if failure.error is error)
        shared = (failure for failure in self.failures if error in failure.error.others)
        return next(own, None) or next(shared, None)


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
