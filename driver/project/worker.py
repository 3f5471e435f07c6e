"""What a worker of a cluster does: one step, from files of the store to a file of the store.

It is loaded by the worker's Python; it needs this package and the tools, and nothing of Dask.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from mlir_offload.driver.project.store import StepStore
from mlir_offload.driver.step.launcher import own_program
from mlir_offload.driver.workspace import open_workspace
from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError
from mlir_offload.toolchain.process import Command, ProcessRunner, describe_status

# The exit status of a step that was told to end.
_INTERRUPTED = 130
# A place in the arguments where a file of the worker is put: {0} is the output.
_PLACE = "\0{}\0"


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step whose arguments name its files by number, and the keys that these have in the store."""

    store: str
    key: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredEnd:
    """How a step ended on a worker. What it made is in the store, if the exit status is 0.

    A failure is a value, not an exception, so that the cluster does not repeat it.
    """

    exit_status: int
    message: str
    is_reused: bool = False


class StepInterruptedError(Exception):
    """Somebody ended the step from outside, as SLURM does with all of a job: it is worth repeating."""


def numbered(number: int) -> str:
    """Return how arguments name a file: 0 is the output, the inputs follow."""
    return _PLACE.format(number)


def run_stored(step: StoredStep, directory: str) -> StoredEnd:
    """Run a step in a new directory below one of the worker; put what it made into the store.

    Raises StepInterruptedError where it was told to end.
    """
    store = StepStore(Path(step.store))
    if store.has(step.key):
        return StoredEnd(0, "", is_reused=True)
    try:
        with open_workspace(parent=Path(directory)) as place:
            return _run(step, store, place)
    except MlirOffloadError as error:
        return StoredEnd(error.exit_status, f"{error.message}\n  hint: {error.hint}\n")


def _run(step: StoredStep, store: StepStore, directory: Path) -> StoredEnd:
    output = directory / "output"
    files = (output, *(store.place(key) for key in step.inputs))
    arguments = []
    for word in step.arguments:
        for number, file in enumerate(files):
            word = word.replace(numbered(number), str(file))  # noqa: PLW2901
        arguments.append(word)
    command = Command((*own_program(), *arguments), (("TMPDIR", str(directory)),))
    completed = ProcessRunner().run(command)
    if completed.returncode in {_INTERRUPTED, -signal.SIGTERM}:
        raise StepInterruptedError(describe_status(completed.returncode))
    if completed.returncode < 0:
        status = describe_status(completed.returncode)
        message = f"{completed.stderr}{status}: {command}\n"
        return StoredEnd(ToolFailedError.exit_status, message)
    if completed.returncode == 0:
        store.add(step.key, output)
    return StoredEnd(completed.returncode, completed.stderr)
