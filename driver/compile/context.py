"""What one call of the compiler works with, what its outputs depend on, and how its clang compiles host code.

Job slots and workspace come first, then options, tools, targets and executor.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.message.report import show
from mlir_offload.driver.option.command_line import final_outputs, sources
from mlir_offload.driver.option.compile_options import (
    MLIR_SUFFIXES,
    PREPROCESSED_SUFFIXES,
    CompileOptions,
    Mode,
)
from mlir_offload.driver.step import downgrade as step_downgrade
from mlir_offload.driver.step import launcher as step_launcher
from mlir_offload.driver.step import rule as step_rule
from mlir_offload.driver.step.execute import Executor
from mlir_offload.driver.system import depfile
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.driver.system.workspace import open_workspace
from mlir_offload.driver.tools.choose import (
    FoundTools,
    choose_slots,
    choose_source_time,
    load_tools_once,
)
from mlir_offload.toolchain.process import Command, ProcessRunner, Runner, as_operand

if TYPE_CHECKING:
    from mlir_offload.driver.step.launcher import LaunchedSteps, Launcher
    from mlir_offload.driver.system.parallel import Task
    from mlir_offload.driver.tools.releases import Releases
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.llvm import LlvmToolchain
    from mlir_offload.toolchain.rocm import RocmInstallation
    from mlir_offload.toolchain.target import Kind, Target

STANDARD_STREAM = "-"


class Dependency(Struct, frozen=True):
    """A file that was read for a source; a system file is one that `-MMD` leaves out.

    `target` is the one whose device image needs it, empty if the source does for every target.
    """

    path: Path
    is_system: bool = False
    target: str = ""


class DependencyLog(Struct):
    """The files next to a source itself that its compilation read, noted by whoever read them."""

    _read: dict[Path, dict[Dependency, None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, source: Path, path: Path, *, is_system: bool = False, target: str = "") -> None:
        """Note that the compilation of `source` read the file: a pipeline, bitcode, a library."""
        with self._lock:
            self._read.setdefault(source, {})[Dependency(path, is_system, target)] = None

    def of(self, source: Path) -> tuple[Dependency, ...]:
        """Return what was noted for the source, in the order of the paths."""
        with self._lock:
            noted = list(self._read.get(source, ()))
        return tuple(sorted(noted, key=lambda dependency: str(dependency.path)))


class PlannedDepfile(Struct, frozen=True):
    """A dependency file that is to be written: its name (`-`: standard output), targets, sources."""

    file: str
    targets: tuple[str, ...]
    sources: tuple[Path, ...]


def plan_depfiles(options: CompileOptions) -> tuple[PlannedDepfile, ...]:
    """Return the dependency files of the call, named as clang names them.

    Where one file serves several sources, because `-MF` or the output of a link names it, clang
    leaves the rule of the last one; here the one rule holds all of them.
    """
    request, compiled = options.depfile, sources(options)
    links = options.mode is Mode.LINK
    # Of a link alone, which reads libraries, clang says nothing unless it is asked by name.
    if not request.is_wanted or not (compiled or (links and request.file)):
        return ()
    rules: list[tuple[Path, tuple[Path, ...]]]
    if options.mode is Mode.HEADER:
        rules = [(output, compiled) for output in final_outputs(options)]
    else:
        rules = [(output, (source,)) for output, source in compiled_objects(options)]
    if links and (options.output is not None or not compiled):
        (output,) = final_outputs(options)
        rules = [(output, compiled)]
    if request.file:
        return (_planned(options, request.file, (target for target, _ in rules), compiled),)
    return tuple(
        _planned(options, str(target.with_suffix(".d")), (target,), of) for target, of in rules
    )


def compiled_objects(options: CompileOptions) -> tuple[tuple[Path, Path], ...]:
    """Return for each source what it is compiled to; where it is linked, what `-c` would make."""
    compiled = sources(options)
    if options.mode is Mode.LINK:
        return tuple((Path(path.stem + ".o"), path) for path in compiled)
    return tuple(zip(final_outputs(options), compiled, strict=True))


def _planned(
    options: CompileOptions, file: str, targets: Iterable[Path], of: tuple[Path, ...]
) -> PlannedDepfile:
    made = [*targets]
    # What includes the header depends on it: a rule that makes both would be a circle.
    if options.header is not None and all(path.suffix in MLIR_SUFFIXES for path in of):
        made.append(options.header)
    named = options.depfile.targets or tuple(
        map(depfile.quote_for_make, dict.fromkeys(map(str, made)))
    )
    return PlannedDepfile(file, named, of)


def clang_depfile(output: Path) -> Path:
    """Return where clang notes what it read for an object in the workspace."""
    return output.with_suffix(".d")


def notes_dependencies(options: CompileOptions) -> bool:
    """Return whether someone asks which files were read."""
    return options.depfile.is_wanted or options.manifest is not None or options.why_rebuilt


def clang_depfile_arguments(options: CompileOptions, source: Path, output: Path) -> tuple[str, ...]:
    """Return the options by which clang notes what it includes, for a source that it preprocesses."""
    if not notes_dependencies(options) or source.suffix not in PREPROCESSED_SUFFIXES:
        return ()
    which = "-MD" if options.depfile.has_system_files else "-MMD"
    return (which, "-MF", str(clang_depfile(output)), "-MT", "object")


def read_dependencies(source: Path, output: Path, log: DependencyLog) -> tuple[Path, ...]:
    """Return what was read for a source that has been compiled to `output`, besides itself."""
    noted = [dependency.path for dependency in log.of(source)]
    rule = clang_depfile(output)
    if source.suffix in PREPROCESSED_SUFFIXES and rule.exists():
        text = rule.read_text(encoding="utf-8", errors="surrogateescape")
        noted += map(Path, depfile.read_prerequisites(text))
    return tuple(path for path in noted if path != source)


def depfile_step(
    options: CompileOptions,
    planned: PlannedDepfile,
    log: DependencyLog,
    compiled: Mapping[Path, Path],
    output: Path,
) -> step_rule.Depfile:
    """Return the step that writes the rule."""
    linked = final_outputs(options) if options.mode is Mode.LINK else ()
    noted = (item for read_for in (*planned.sources, *linked) for item in log.of(read_for))
    others = [
        str(dependency.path)
        for dependency in noted
        if options.depfile.has_system_files or not dependency.is_system
    ]
    from_clang = (
        clang_depfile(compiled[source])
        for source in planned.sources
        if source.suffix in PREPROCESSED_SUFFIXES
    )
    return step_rule.Depfile(
        sources=tuple(map(str, planned.sources)),
        made=planned.targets,
        others=tuple(dict.fromkeys(others)),
        rules=tuple(from_clang),
        phony=options.depfile.has_phony_targets,
        output=output,
    )


class BuildContext(Struct, frozen=True):
    """The decisions that hold for every input of one call.

    `releases` is who lowers, compiles and links; `search_path` is PATH as the user has it; `source_time` what is written for a time; `given` is what
    the objects and libraries of a link hold, `linked` what shared libraries do, which had their
    device link, `library_functions` what they call of MLIR's libraries; `compiled` tells the file that each source is compiled to; `pending` what was
    started early, by the file that it makes; `dependencies` which further files were read for a
    source; `parts` the hashes of what a source consists of, once they are known; `launched` how steps are
    started under a launcher, where there is one.
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
    library_functions: frozenset[str] = frozenset()
    compiled: Mapping[Path, Path] = field(default_factory=dict)
    pending: dict[Path, Task[None]] = field(default_factory=dict)
    launched: LaunchedSteps | None = None
    rocm: RocmInstallation | None = None
    dependencies: DependencyLog = field(default_factory=DependencyLog)
    parts: dict[Path, Mapping[str, str]] = field(default_factory=dict)
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
        """Return the libomptarget to link with, None where the runtime's fallback takes its place."""
        return None if self.options.no_libomptarget else self.llvm.libomptarget

    @property
    def consumer(self) -> int:
        """Return the linking LLVM what is written: its major number."""
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

    def text_for(self, reader: int, text: Path, source: Path, *, decides: bool = False) -> Path:
        """Return LLVM IR text that a release of LLVM reads: the text itself where it lowered too.

        Raises CompatibilityError for a construct of `source` that has no form in that release.
        """
        if reader >= self.mlir.version.major:
            return text
        output = text.with_name(f"{text.stem}.for{reader}.ll")
        step = step_downgrade.Downgrade(
            source=text, reader=reader, location=str(source), output=output
        )
        return self.executor.once(output, partial(self.executor.step, step, decides=decides))

    def is_lowered(self, text: Path) -> bool:
        """Say whether a module was lowered to this file together with others; wait for that."""
        return self.joint is not None and text in self.joint.result()


def host_command(context: BuildContext, source: Path, output: Path, *extra: str) -> Command:
    """Return the command by which the consumer's clang compiles a host file, of any language."""
    options = context.options
    form = {
        Mode.LLVM_BITCODE: ("-c", "-emit-llvm"),
        Mode.LLVM_TEXT: ("-S", "-emit-llvm"),
        Mode.ASSEMBLY: ("-S",),
    }.get(options.mode, ("-c",))
    flags = (
        options.opt_flag,
        *((options.debug_spelled,) if options.debug else ()),
        *(("-fPIC",) if options.pic or options.shared else ()),
        *((options.sanitizer.flag,) if options.sanitizer else ()),
        # The triple and layout that mlir-translate leaves out are this clang's own.
        *(("-Wno-override-module",) if source.suffix in {".ll", ".bc"} else ()),
    )
    is_ir = source.suffix in {".ll", ".bc"}
    arguments = options.code_arguments if is_ir else options.compiler_arguments
    clang = str(context.llvm.tool("clang"))
    return Command(
        (clang, *form, *flags, *arguments, *extra, as_operand(str(source)), "-o", str(output))
    )


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
        if isinstance(self.runner, ProcessRunner) and _lowers(self.options):
            is_dry = self.options.dry_run
            load_tools_once(self.runner, tools.releases, self.workspace, is_dry=is_dry)
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


def _lowers(options: CompileOptions) -> bool:
    return any(source.suffix in MLIR_SUFFIXES for source in sources(options))


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
