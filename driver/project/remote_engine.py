"""Run steps of a project on the workers of a server; the others run here."""

from __future__ import annotations

from pathlib import PurePosixPath

from msgspec import Struct

from mlir_offload.driver.project.engine import LocalEngine, message_diagnostic
from mlir_offload.driver.project.graph import ProjectGraph
from mlir_offload.driver.project.planned_step import DECLARED, SPLIT, ProjectStep
from mlir_offload.driver.project.run import StepEnd
from mlir_offload.driver.remote.address import RemoteOptions
from mlir_offload.driver.remote.blob import FileBlobs, RemoteFiles
from mlir_offload.driver.remote.execution import Execution, RemoteResult
from mlir_offload.driver.remote.request import check_paths, describe
from mlir_offload.driver.remote.server import open_server
from mlir_offload.driver.system.workspace import make_directory, open_output
from mlir_offload.toolchain.byte_view import write_all

LANES = 64
"""How many steps are given to a server at the same time, if nobody says another number."""


class RemoteEngine(Struct, frozen=True):
    """Sends steps that read only what they declare; `local` runs the others.

    It `splits_modules` where modules alone would not keep its lanes busy.
    """

    local: LocalEngine
    execution: Execution
    files: FileBlobs
    lanes: int
    splits_modules: bool

    def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
        """Take the result of a step from the server, or let a worker make it."""
        if step.kind not in DECLARED:
            return self.local.run(step)
        del jobs
        root, platform = self.local.root, self.execution.server.platform
        action = describe(step.action, message_diagnostic(), root, self.files, platform)
        result = self.execution.run(action)
        if result.exit_status:
            return self._failed(step, result)
        for path, content in result.outputs.items():
            make_directory((root / path).parent)
            with open_output(root / path) as descriptor:
                write_all(content, descriptor)
        return StepEnd(0, result.said)

    def _failed(self, step: ProjectStep, result: RemoteResult) -> StepEnd:
        """Tell what a step fails of: repeated here, it names places in the program."""
        end = self.local.run(step)
        if end.exit_status:
            return end
        # Nobody knows what else such a worker makes.
        return StepEnd(
            result.exit_status,
            f"{self.execution.server.address.url}: it fails on {result.worker}, and not here:\n"
            f"{result.said}  hint: give the workers the tools of this machine, or choose workers "
            "that have them by --remote-platform=\n",
        )

    def cancel(self) -> None:
        """End what workers do for this build."""
        self.execution.server.cancel()

    def close(self) -> None:
        """Close the connections; `local` is closed by who made it."""
        self.execution.server.close()


def open_engine(
    options: RemoteOptions, lanes: int, local: LocalEngine, graph: ProjectGraph
) -> RemoteEngine:
    """Return an engine for the steps of a graph.

    Raises UsageError for a step that reads what no worker has, and what `open_server` raises.
    """
    makers = graph.makers
    for step in graph.steps:
        if step.kind in DECLARED:
            paths = (path for path in step.action.reads if path not in makers)
            check_paths(map(PurePosixPath, paths), step.label, graph.project.manifest)
    server = open_server(options, lanes)
    execution = Execution(server, RemoteFiles(server))
    modules = sum(step.kind == SPLIT for step in graph.steps)
    return RemoteEngine(local, execution, FileBlobs(), lanes, splits_modules=modules < lanes)
