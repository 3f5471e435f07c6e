"""What one call of the compiler works with: job slots and workspace first, then options, tools, targets, executor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.message.report import show
from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.driver.record.dependencies import DependencyLog
from mlir_offload.driver.step import launcher as step_launcher
from mlir_offload.driver.step.execute import Executor
from mlir_offload.driver.system.jobserver import JobSlots
from mlir_offload.driver.system.workspace import open_workspace
from mlir_offload.driver.tools.choose import FoundTools, choose_slots, choose_source_time
from mlir_offload.toolchain.process import Runner

if TYPE_CHECKING:
    from mlir_offload.driver.step.launcher import LaunchedSteps, Launcher
    from mlir_offload.driver.system.parallel import Task
    from mlir_offload.driver.tools.releases import Releases
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.llvm import LlvmToolchain
    from mlir_offload.toolchain.rocm import RocmInstallation
    from mlir_offload.toolchain.target import Kind, Target


class BuildContext(Struct, frozen=True):
    """The decisions that hold for every input of one call.

    `releases` is who lowers, compiles and links; `search_path` is PATH as the user has it; `source_time` what is written for a time; `given` is what
    the objects and libraries of a link hold, `linked` what shared libraries do, which had their
    device link; `compiled` tells the file that each source is compiled to; `pending` what was
    started early, by the file that it makes; `dependencies` which further files were read for a
    source; `launched` how steps are started under a launcher, where there is one.
    """

    options: CompileOptions
    releases: Releases
    cuda: CudaToolkit | None
    targets: tuple[Target, ...]
    executor: Executor
    workspace: Path
    search_path: str
    source_time: int = 1
    given: tuple[ObjectContents, ...] = ()
    linked: tuple[ObjectContents, ...] = ()
    compiled: Mapping[Path, Path] = field(default_factory=dict)
    pending: dict[Path, Task[None]] = field(default_factory=dict)
    launched: LaunchedSteps | None = None
    rocm: RocmInstallation | None = None
    dependencies: DependencyLog = field(default_factory=DependencyLog)
    libdevice: Path | None = None
    joint: Task[frozenset[Path]] | None = None

    @property
    def llvm(self) -> LlvmToolchain:
        """Return the LLVM whose clang compiles here, and links."""
        return self.releases.llvm

    @property
    def mlir(self) -> LlvmToolchain:
        """Return the LLVM that lowers MLIR."""
        return self.releases.mlir

    @property
    def libomptarget(self) -> Path | None:
        """Return the libomptarget to link with, None where the runtime's stand-in takes its place."""
        return None if self.options.no_libomptarget else self.llvm.libomptarget

    @property
    def consumer(self) -> int:
        """Return the LLVM release that links what is written: its major number."""
        return self.releases.consumer

    @property
    def host_reader(self) -> int:
        """Return the LLVM release that reads the IR of host code: the user's, or the clang here."""
        return self.consumer if self.options.emit_llvm else self.llvm.version.major

    @property
    def for_clang(self) -> str:
        """Return who links what is written, as `--for-clang=` of a step spells it."""
        return self.options.for_clang if self.options.is_for_any_clang else str(self.consumer)

    def targets_of(self, kind: Kind) -> tuple[Target, ...]:
        """Return the targets of one offload kind."""
        return tuple(target for target in self.targets if target.kind is kind)

    def wait_for(self, file: Path) -> None:
        """Return when a file that was started early is there; raise what went wrong on the way."""
        if file in self.pending:
            self.pending[file].result()

    def is_lowered(self, text: Path) -> bool:
        """Say whether a module was lowered to this file together with others; wait for that."""
        return self.joint is not None and text in self.joint.result()


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
