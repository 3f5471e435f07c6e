"""Run the steps of a project on this host, in worker processes that have imported their modules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec
from msgspec import Struct, field

from mlir_offload.driver.message.report import speaks_to_people
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.project.run import StepEnd
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.driver.system.workspace import make_directory
from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.toolchain.process import (
    Command,
    Conversation,
    ProcessRunner,
    describe_status,
)
from mlir_offload.toolchain.target import Kind

_WORKER = "mlir_offload.driver.worker"


def message_diagnostic() -> tuple[str, ...]:
    """Return the message format of steps: text, or JSON if the build converts it to another format."""
    return () if speaks_to_people() else ("--message-format=json",)


class LocalEngine(Struct, frozen=True):
    """Runs steps on this host.

    Each worker inherits the `lock` of the build directory: if only this process is killed, the next build
    waits for its workers. `kinds` are the device kinds whose modules the workers import.
    """

    root: Path
    runner: ProcessRunner
    slots: JobSlots
    lock: int
    kinds: frozenset[Kind]
    splits_modules: bool = False
    _idle: SimpleQueue[Conversation] = field(default_factory=SimpleQueue)

    @property
    def lanes(self) -> int:
        """Return the number of steps to run concurrently."""
        return self.slots.jobs

    def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
        """Run a step in a separate process, with up to `jobs` concurrent programs. Raises ToolFailedError."""
        with self.slots.slot(), self._worker() as worker:
            for output in step.action.outputs:
                make_directory(self.root / output.parent)
            share = (f"-j{jobs}",) if jobs > 1 and not self.slots.is_shared else ()
            arguments = (*step.action.arguments, *share, *message_diagnostic())
            answer = worker.ask(json.dumps(arguments))
        if not answer:
            msg = f"the worker of the step '{step.label}' was killed"
            raise ToolFailedError(msg, hint="is there enough memory? see the system's log")
        status, text = json.loads(answer)
        if status >= 0:
            return StepEnd(status, text)
        said = f"{text}{describe_status(status)}: mlir-offload {' '.join(arguments)}\n"
        return StepEnd(ToolFailedError.exit_status, said)

    def cancel(self) -> None:
        """Do nothing: the signal that ends a build also ends its processes."""

    def close(self) -> None:
        """Close idle workers, which then exit."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return

    @contextmanager
    def _worker(self) -> Iterator[Conversation]:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            # -P: do not import modules from the project's directory.
            servers = self.runner.share_fork_servers()
            shared = msgspec.json.encode(servers).decode() if servers else ""
            words = (_WORKER, sys.argv[0], shared, *map(str, self.kinds))
            argv = (sys.executable, "-X", "utf8", "-P", "-m", *words)
            inherited = (self.lock, *(servers.sockets.values() if servers else ()))
            worker = self.runner.talk(Command(argv, cwd=self.root, inherited=inherited))
        yield worker
        if worker.child.poll() is None:
            self._idle.put(worker)
        else:
            worker.close()
