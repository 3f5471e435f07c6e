"""Run the steps of a project: each when its inputs are there, and only where something changed."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from mlir_offload.driver.jobserver import JobSlots
from mlir_offload.driver.message.escape import shown, shown_message
from mlir_offload.driver.message.report import speaks_to_people
from mlir_offload.driver.project.graph import ProjectGraph, ProjectStep
from mlir_offload.driver.project.state import ProjectState, Stamp
from mlir_offload.driver.step.launcher import own_program
from mlir_offload.driver.tool_watch import ToolWatch
from mlir_offload.driver.workspace import make_directory
from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError
from mlir_offload.toolchain.process import Command, Runner, describe_status


class StepOutcome(Enum):
    """What became of a step."""

    BUILT = "built"
    CURRENT = "current"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a step, when (seconds since the build began), and in which lane.

    `message` is what the step said.
    """

    step: ProjectStep
    outcome: StepOutcome
    start_s: float = 0.0
    duration_s: float = 0.0
    lane: int = 0
    exit_status: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step ended: its exit status, and what it said."""

    exit_status: int
    message: str = ""


class StepEngine(Protocol):
    """Runs single steps; several threads call it at the same time."""

    @property
    def lanes(self) -> int:
        """Return how many steps to give it at the same time."""

    def run(self, step: ProjectStep) -> StepEnd:
        """Run a step to its end."""

    def stop(self) -> None:
        """Let every run that is waiting for its end raise, because the build is interrupted."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs steps as processes of this machine.

    Each keeps the `lock` of the build directory: where this process is killed alone, the next build
    waits for those that it leaves.
    """

    root: Path
    runner: Runner
    slots: JobSlots
    lock: int

    @property
    def lanes(self) -> int:
        """Return how many steps run at the same time."""
        return self.slots.jobs

    def run(self, step: ProjectStep) -> StepEnd:
        """Run a step as a process."""
        with self.slots.slot():
            for output in step.action.outputs:
                make_directory(self.root / output.parent)
            return self._run(step.action.arguments)

    def stop(self) -> None:
        """Do nothing: who interrupts us ends the processes too."""

    def _run(self, arguments: tuple[str, ...]) -> StepEnd:
        # To machines we pass on messages, whatever the form in the end; people read the step's text.
        form = () if speaks_to_people() else ("--message-format=json",)
        argv = (*own_program(), *arguments, *form)
        command = Command(argv, cwd=self.root, inherited=(self.lock,))
        completed = self.runner.run(command)
        if completed.returncode >= 0:
            return StepEnd(completed.returncode, completed.stderr)
        status = describe_status(completed.returncode)
        return StepEnd(ToolFailedError.exit_status, f"{completed.stderr}{status}: {command}\n")


Notice = Callable[[StepResult], None]


@dataclass(slots=True)
class ProjectRun:
    """One run over a graph. Results are in the order in which the steps ended.

    What a step made is recorded only while the `tools` are those that were found.
    """

    graph: ProjectGraph
    state: ProjectState
    engine: StepEngine
    notice: Notice
    starts: Callable[[ProjectStep], None]
    keeps_going: bool = False
    tools: ToolWatch = field(default_factory=ToolWatch)
    results: list[StepResult] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _needs: list[set[int]] = field(default_factory=list)
    _users: list[list[int]] = field(default_factory=list)
    _ready: list[int] = field(default_factory=list)
    _running: dict[Future[StepResult], tuple[int, dict[str, Stamp | None], int]] = field(
        default_factory=dict
    )
    _free_lanes: list[int] = field(default_factory=list)
    _has_failed: bool = False

    def run(self) -> list[StepResult]:
        """Do what is not done yet. Steps that cannot run because others failed are skipped."""
        steps = range(len(self.graph.steps))
        self._needs = [set(self.graph.needs(number)) for number in steps]
        self._users = [[] for _ in steps]
        for number in steps:
            for need in self._needs[number]:
                self._users[need].append(number)
        self._ready = [number for number in steps if not self._needs[number]]
        self._free_lanes = list(range(self.engine.lanes))
        with ThreadPoolExecutor(max_workers=self.engine.lanes) as pool:
            try:
                while self._start_ready(pool):
                    self._collect()
            except BaseException:
                # The pool waits for its threads, which may wait for a worker that never comes.
                self.engine.stop()
                raise
        done = {id(result.step) for result in self.results}
        for step in self.graph.steps:
            if id(step) not in done:
                self._note(StepResult(step, StepOutcome.SKIPPED))
        return self.results

    def _start_ready(self, pool: ThreadPoolExecutor) -> bool:
        """Start steps as long as there are lanes; say whether any is running."""
        while self._ready and self._free_lanes and (self.keeps_going or not self._has_failed):
            number = heapq.heappop(self._ready)
            step = self.graph.steps[number]
            if self.state.is_current(step):
                self._end(number, StepResult(step, StepOutcome.CURRENT))
                continue
            inputs, lane = self.state.inputs(step), heapq.heappop(self._free_lanes)
            self.starts(step)
            future = pool.submit(self._run_step, step, lane)
            self._running[future] = (number, inputs, time.time_ns())
        return bool(self._running)

    def _run_step(self, step: ProjectStep, lane: int) -> StepResult:
        start = time.monotonic()
        try:
            end = self.engine.run(step)
        except MlirOffloadError as error:
            hint = f"  hint: {shown(error.hint)}\n" if error.hint else ""
            text = f"{shown_message(error.message)}\n{hint}"
            end = StepEnd(error.exit_status, text)
        outcome = StepOutcome.FAILED if end.exit_status else StepOutcome.BUILT
        began, took = start - self._began, time.monotonic() - start
        return StepResult(step, outcome, began, took, lane, end.exit_status, end.message)

    def _collect(self) -> None:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            number, inputs, started_ns = self._running.pop(future)
            result = future.result()
            heapq.heappush(self._free_lanes, result.lane)
            if result.outcome is StepOutcome.BUILT:
                self.tools.check()
                self.state.record(result.step, inputs, started_ns)
            self._end(number, result)

    def _end(self, number: int, result: StepResult) -> None:
        self._note(result)
        if result.outcome is StepOutcome.FAILED:
            self._has_failed = True
            return
        for user in self._users[number]:
            self._needs[user].discard(number)
            if not self._needs[user]:
                heapq.heappush(self._ready, user)

    def _note(self, result: StepResult) -> None:
        self.results.append(result)
        self.notice(result)
