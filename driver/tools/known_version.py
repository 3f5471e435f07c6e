"""What programs said of their versions the last time, so that most calls start none to ask."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.system.tool_watch import program_stamp
from mlir_offload.driver.system.workspace import replace_file, user_cache
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, Runner


def knowing_versions(runner: Runner) -> Runner:
    """Return a runner that remembers versions of real programs; recorded ones are asked each time."""
    return _KnownVersions(runner) if isinstance(runner, ProcessRunner) else runner


class _KnownVersions(Struct, frozen=True):
    runner: Runner

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command, or return what it printed before: `--version` of an unchanged program."""
        program, *rest = command.argv
        stamp = program_stamp(Path(program)) if rest == ["--version"] else ""
        if not stamp:
            return self.runner.run(command, input_text=input_text)
        # One file for each program, its first line the stamp: no call waits for a reader of JSON.
        file, head = _file(program), f"{program} {stamp}\n"
        with contextlib.suppress(OSError, ValueError):
            known = file.read_text(encoding="utf-8")
            if known.startswith(head):
                return Completed(command, 0, known.removeprefix(head), "")
        completed = self.runner.run(command, input_text=input_text)
        if completed.returncode == 0:
            with contextlib.suppress(OSError, ValueError):
                replace_file(file, head + completed.stdout)
        return completed


def _file(program: str) -> Path:
    # A name that is too long for a file is not kept.
    return user_cache(os.environ) / "versions" / program.replace("/", "!")
