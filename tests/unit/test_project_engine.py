"""The workers of a build: each step in a separate process, and the handling of killed workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from mlir_offload.driver.project.engine import LocalEngine
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.step.action import Action
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.toolchain.process import ProcessRunner


def step(*arguments: str) -> ProjectStep:
    action = Action(arguments, (), (), "")
    return ProjectStep("module", PurePosixPath("k.mlir"), "default", action)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    # Workers must not import a module of that name from the project's directory.
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    with (tmp_path / "lock").open("wb") as lock:
        engine = LocalEngine(tmp_path, ProcessRunner(), JobSlots(1), lock.fileno(), frozenset())
        yield engine
        engine.close()


def test_each_step_has_a_process_of_its_own_and_its_own_messages(engine: LocalEngine) -> None:
    assert "BC015" in engine.run(step("explain", "BC015")).message
    wrong = engine.run(step("explain", "XX999"))
    assert (wrong.exit_status, "XX999" in wrong.message) == (2, True)
    again = engine.run(step("explain", "BC015"))
    assert (again.exit_status, "XX999" in again.message) == (0, False)


def test_a_worker_that_is_killed_fails_its_step_and_is_replaced(engine: LocalEngine) -> None:
    engine.run(step("explain", "BC015"))
    worker = engine._idle.get_nowait()
    os.kill(worker.child.pid, signal.SIGKILL)
    worker.child.wait()
    engine._idle.put(worker)
    with pytest.raises(ToolFailedError, match=r"the worker of the step 'module k\.mlir"):
        engine.run(step("explain", "BC015"))
    assert engine.run(step("explain", "BC015")).exit_status == 0
