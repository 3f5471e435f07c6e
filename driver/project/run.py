"""Run the steps of a project: each when its inputs exist, and only if something changed."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from enum import Enum
from typing import Protocol

from msgspec import Struct, field

from mlir_offload.driver.message.escape import shown, shown_message
from mlir_offload.driver.project.graph import ProjectGraph
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.project.stamp import Stamp
from mlir_offload.driver.project.state import ProjectState
from mlir_offload.driver.system.tool_watch import ToolWatch
from mlir_offload.toolchain.errors import MlirOffloadError


class StepOutcome(Enum):
    """The outcome of a step."""

    BUILT = "built"
    CURRENT = "current"
    FAILED = "failed"
    SKIPPED = "skipped"


class StepResult(Struct, frozen=True):
    """The outcome of a step, its times in seconds since the start of the build, and its lane.

    `message` is the output of the step; `steps` is the number of graph steps that it did.
    """

    step: ProjectStep
    outcome: StepOutcome
    start_s: float = 0.0
    duration_s: float = 0.0
    lane: int = 0
    exit_status: int = 0
    message: str = ""
    steps: int = 1


class StepEnd(Struct, frozen=True):
    """The exit status and the output of a step."""

    exit_status: int
    message: str = ""


class StepEngine(Protocol):
    """Runs single steps. Thread-safe."""

    @property
    def lanes(self) -> int:
        """Return the number of steps to run concurrently."""

    @property
    def splits_modules(self) -> bool:
        """Return whether the steps of a module always run separately, rather than as one step if possible."""

    def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
        """Run a step to its end, with up to `jobs` concurrent programs."""

    def cancel(self) -> None:
        """End running steps early."""


def stale_steps(graph: ProjectGraph, state: ProjectState) -> list[ProjectStep]:
    """Return the steps that a run would do, including those that depend on outputs of others."""
    stale: set[int] = set()
    for number, step in enumerate(graph.steps):
        if not stale.isdisjoint(graph.needs(number)) or not state.is_current(step):
            stale.add(number)
    return [graph.steps[number] for number in sorted(stale)]


Notice = Callable[[StepResult], None]


class _Work(Struct, frozen=True):
    """The work of one process: a step, or all steps of a module; and its inputs before it started."""

    numbers: range
    inputs: dict[str, Stamp | None]
    started_ns: int


class ProjectRun(Struct):
    """One run over a graph. Results are in the order in which the steps ended.

    One process does all steps of a module if none of them was built before; otherwise each step has its own.
    The outputs of a step are recorded only if the `tools` are unchanged.
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
    _running: dict[Future[StepResult], _Work] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)
    _free_lanes: list[int] = field(default_factory=list)
    _has_failed: bool = False

    def run(self) -> list[StepResult]:
        """Run the stale steps. Steps that depend on failed ones are skipped."""
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
                self.engine.cancel()
                raise
        for number, step in enumerate(self.graph.steps):
            if number not in self._done:
                self._note(StepResult(step, StepOutcome.SKIPPED))
        return self.results

    def _start_ready(self, pool: ThreadPoolExecutor) -> bool:
        """Start ready steps while lanes are free; return whether any step is running."""
        while self._ready and self._free_lanes and (self.keeps_going or not self._has_failed):
            number = heapq.heappop(self._ready)
            if number in self._done:
                continue
            step = self.graph.steps[number]
            if self.state.is_current(step):
                self._end(range(number, number + 1), StepResult(step, StepOutcome.CURRENT))
                continue
            numbers = self._together(number)
            if len(numbers) > 1:
                step = self.graph.whole(number)
            inputs, lane = self.state.inputs(step), heapq.heappop(self._free_lanes)
            self.starts(step)
            jobs = max(1, self.engine.lanes // (len(self._ready) + 1))
            future = pool.submit(self._run_step, step, lane, len(numbers), jobs)
            self._running[future] = _Work(numbers, inputs, time.time_ns())
        return bool(self._running)

    def _together(self, number: int) -> range:
        """Return the steps that one process does, starting with this one."""
        numbers = self.graph.module_steps(number)
        if self.engine.splits_modules:
            return range(number, number + 1)
        is_known = any(self.state.knows(self.graph.steps[later]) for later in numbers[1:])
        return range(number, number + 1) if is_known else numbers

    def _run_step(self, step: ProjectStep, lane: int, steps: int, jobs: int) -> StepResult:
        start = time.monotonic()
        try:
            # Concurrent programs of a complete module use the lanes that no other step waits for.
            end = self.engine.run(step, jobs if steps > 1 else 1)
        except MlirOffloadError as error:
            hint = f"  hint: {shown(error.hint)}\n" if error.hint else ""
            where = f"{shown(error.location)}: " if error.location else ""
            text = f"{where}{shown_message(error.message)}\n{hint}"
            end = StepEnd(error.exit_status, text)
        outcome = StepOutcome.FAILED if end.exit_status else StepOutcome.BUILT
        began, took = start - self._began, time.monotonic() - start
        return StepResult(step, outcome, began, took, lane, end.exit_status, end.message, steps)

    def _collect(self) -> None:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            work, result = self._running.pop(future), future.result()
            heapq.heappush(self._free_lanes, result.lane)
            if result.outcome is StepOutcome.BUILT:
                self.tools.check()
                self._record(work)
            self._end(work.numbers, result)

    def _record(self, work: _Work) -> None:
        steps = [self.graph.steps[number] for number in work.numbers]
        for step in steps:
            self.state.stamps.forget(step.action.outputs)
        for step in steps:
            # The module's steps exchange files that did not exist before it started.
            inputs = {**self.state.inputs(step), **work.inputs} if len(steps) > 1 else work.inputs
            own = {str(path): inputs[str(path)] for path in step.action.inputs}
            self.state.record(step, own, work.started_ns)

    def _end(self, numbers: range, result: StepResult) -> None:
        self._note(result)
        self._done.update(numbers)
        if result.outcome is StepOutcome.FAILED:
            self._has_failed = True
            return
        for user in (user for number in numbers for user in self._users[number]):
            self._needs[user].difference_update(numbers)
            if not self._needs[user]:
                heapq.heappush(self._ready, user)

    def _note(self, result: StepResult) -> None:
        self.results.append(result)
        self.notice(result)
