"""Run the steps of a project on a cluster of Dask workers that share a directory with us.

A task answers with a key, never with bytes: what a lost worker had done is in the store, and only
the steps that it was running are repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.project.graph import DEVICE, JOIN, ProjectGraph, ProjectStep
from mlir_offload.driver.project.run import LocalEngine, StepEnd
from mlir_offload.driver.project.store import StepStore, step_key
from mlir_offload.driver.project.worker import StoredEnd, StoredStep, numbered, run_stored
from mlir_offload.driver.workspace import make_directory, publish
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError, ToolFailedError

if TYPE_CHECKING:
    from distributed import Client

_REMOTE = frozenset({DEVICE, JOIN})
# Enough that no worker waits for us; each costs a thread that sleeps.
_STEPS_PER_THREAD = 2
_RETRIES = 2
_FEWEST_LANES, _MOST_LANES = 8, 256


@dataclass(frozen=True, slots=True)
class ClusterEngine:
    """Gives images and objects to the workers; splits and links stay here, where the sources are."""

    client: Client
    store: StepStore
    local: LocalEngine
    lanes: int

    def run(self, step: ProjectStep) -> StepEnd:
        """Run a step where it belongs. Raises MlirOffloadError where the cluster fails."""
        if step.kind not in _REMOTE:
            return self.local.run(step)
        stored = self._stored(step)
        end, place = self._submit(step, stored)
        if end.exit_status == CompatibilityError.exit_status:
            return StepEnd(end.exit_status, f"worker {place}: {end.message}", place)
        if end.exit_status:
            failed = StepEnd(end.exit_status, end.message, place)
            return self.local.retell(step, failed) if step.retold else failed
        root = self.local.root
        make_directory(root / step.outputs[0].parent)
        publish(self.store.place(stored.key), root / step.outputs[0])
        return StepEnd(0, end.message, place)

    def stop(self) -> None:
        """Take back what no worker has done yet."""
        # The scheduler forgets what no client waits for.
        self.client.close()  # type: ignore[no-untyped-call]  # Dask tells no types

    def _stored(self, step: ProjectStep) -> StoredStep:
        """Return the step with its inputs in the store, its files named by number."""
        keys = tuple(self.store.add_content(self.local.root / path) for path in step.inputs)
        names = {str(path): numbered(i) for i, path in enumerate((*step.outputs, *step.inputs))}
        arguments = tuple(_renamed(word, names) for word in step.arguments)
        key = step_key(step.toolchain_id, arguments, keys)
        return StoredStep(str(self.store.directory), key, arguments, keys)

    def _submit(self, step: ProjectStep, stored: StoredStep) -> tuple[StoredEnd, str]:
        if self.store.has(stored.key):
            return StoredEnd(0, "", is_reused=True), ""
        try:
            # pure=False: a step that failed is not remembered by the scheduler.
            # What is repeated is a step that was ended together with its worker.
            future = self.client.submit(run_on_worker, stored, pure=False, retries=_RETRIES)
            end, place = future.result()
        except Exception as error:
            # Whatever the cluster raises is no error of the step: those come as values.
            msg = f"the cluster lost the step '{step.label}': {type(error).__name__}: {error}"
            hint = "the scheduler and its workers need this mlir-offload too; see what they print"
            raise ToolFailedError(msg.splitlines()[0], hint=hint) from error
        return end, place


def _renamed(word: str, names: dict[str, str]) -> str:
    """Return an argument with a number in the place of a file: FILE or --option=FILE."""
    option, equals, value = word.partition("=")
    if equals and option.startswith("--") and value in names:
        return f"{option}={names[value]}"
    return names.get(word, word)


def run_on_worker(step: StoredStep) -> tuple[StoredEnd, str]:
    """Run the step and tell which worker did it."""
    from distributed import get_worker

    worker = get_worker()
    return run_stored(step, worker.local_directory), f"{worker.name} ({worker.address})"


@contextlib.contextmanager
def open_cluster(
    scheduler: str, store: Path, graph: ProjectGraph, local: LocalEngine
) -> Iterator[ClusterEngine]:
    """Connect to a scheduler.

    Raises ToolchainError where Dask is not installed or the scheduler does not answer,
    InputOutputError where the store cannot be written.
    """
    try:
        from distributed import Client
    except ImportError as error:
        msg = "--scheduler needs Dask, which is not installed"
        raise ToolchainError(msg, hint="pip install 'mlir-offload[dask]'") from error
    make_directory(store)
    try:
        client = Client(scheduler, set_as_default=False)  # type: ignore[no-untyped-call]  # Dask tells no types
    except (OSError, ValueError) as error:
        msg = f"no Dask scheduler answers at {scheduler}"
        hint = "start one with 'dask scheduler', and workers with 'dask worker ADDRESS'"
        raise ToolchainError(msg, hint=hint) from error
    with client:
        threads = sum(client.nthreads().values())  # type: ignore[no-untyped-call]  # as above
        if threads == 0:
            show_note(f"{scheduler} has no worker yet; waiting for one")
        wanted = max(_STEPS_PER_THREAD * threads, _FEWEST_LANES)
        lanes = min(wanted, _MOST_LANES, max(len(graph.steps), 1))
        yield ClusterEngine(client, StepStore(store.absolute()), local, lanes)
