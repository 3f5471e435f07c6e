"""Run steps of a project on the workers of a remote execution server, and the others on this host."""

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
"""The default number of concurrent actions on a server."""


class RemoteEngine(Struct, frozen=True):
    """Sends steps whose inputs are all declared to a server; `local` runs the others.

    It `splits_modules` if there are fewer modules than lanes.
    """

    local: LocalEngine
    execution: Execution
    files: FileBlobs
    lanes: int
    splits_modules: bool

    def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
        """Get the result of a step from the server, which takes it from its cache or runs the step."""
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
        """Run a failed step locally, because only local errors contain source locations; report a difference."""
        end = self.local.run(step)
        if end.exit_status:
            return end
        # The step fails only on the worker, whose other results could be wrong as well.
        return StepEnd(
            result.exit_status,
            f"{self.execution.server.address.url}: it fails on {result.worker}, and not here:\n"
            f"{result.said}  hint: give the workers the tools of this machine, or choose workers "
            "that have them by --remote-platform=\n",
        )

    def cancel(self) -> None:
        """Cancel the actions of this build."""
        self.execution.server.cancel()

    def close(self) -> None:
        """Close the connections, but not `local`, which the caller owns."""
        self.execution.server.close()


def open_engine(
    options: RemoteOptions, lanes: int, local: LocalEngine, graph: ProjectGraph
) -> RemoteEngine:
    """Return an engine for the steps of a graph.

    Raises UsageError for a step that reads files outside of the project, and the errors of `open_server`.
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
