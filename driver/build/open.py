"""Open a build: its job slots and its workspace first, then, once its tools are found, its context."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.message.report import show
from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.driver.step import launcher as step_launcher
from mlir_offload.driver.step.execute import Executor
from mlir_offload.driver.system.jobserver import JobSlots
from mlir_offload.driver.system.workspace import open_workspace
from mlir_offload.driver.tools.choose import FoundTools, choose_slots, choose_source_time
from mlir_offload.toolchain.process import Runner

if TYPE_CHECKING:
    from mlir_offload.driver.step.launcher import Launcher


class Build(Struct, frozen=True):
    """A build that is open: what it is to do, where its intermediate files lie, who runs its programs."""

    options: CompileOptions
    runner: Runner
    workspace: Path
    slots: JobSlots

    def context(
        self,
        tools: FoundTools,
        *,
        sources: Mapping[Path, Path] | None = None,
        launcher: Launcher | None = None,
    ) -> BuildContext:
        """Return what the build works with.

        `sources` tells the user's file for a directory of the workspace. Under a launcher, the steps
        that a cache can keep are processes of their own.
        """
        executor = Executor(
            self.runner,
            show,
            self.workspace,
            slots=self.slots,
            verbose=self.options.verbose,
            dry_run=self.options.dry_run,
            sources=sources or {},
        )
        context = BuildContext(
            self.options,
            tools.releases,
            tools.cuda,
            tools.targets,
            executor,
            self.workspace,
            os.pathsep.join(map(str, tools.places.path)),
            source_time=choose_source_time(),
            rocm=tools.rocm,
        )
        if launcher is None:
            return context

        program = step_launcher.step_program(launcher, self.workspace)
        launched = step_launcher.LaunchedSteps(
            launcher, program, tools.releases, tools.cuda, tools.rocm
        )
        return replace(context, launched=launched)


@contextlib.contextmanager
def open_build(
    options: CompileOptions, runner: Runner, *, slots: JobSlots | None = None
) -> Iterator[Build]:
    """Open a build, by default with as many programs at once as the options and a jobserver allow.

    Must be called before a file is opened. Raises InputOutputError where there is no place for it.
    """
    with (
        contextlib.closing(slots or choose_slots(options)) as taken,
        open_workspace(options.save_temps) as workspace,
    ):
        yield Build(options, runner, workspace, taken)
