"""The context of one invocation, its dependency files, and the clang command that compiles host code.

Job slots and workspace are opened first, then options, tools, targets and executor are added.
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
from mlir_offload.driver.option.command_line import STANDARD_OUTPUT, final_outputs, sources
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
    """A file that the compilation of a source read. `-MMD` omits system files.

    `target` is the only target whose image depends on the file; empty if all targets depend on it.
    """

    path: Path
    is_system: bool = False
    target: str = ""


class DependencyLog(Struct):
    """The files that the compilation of each source read besides the source; each step adds its own."""

    _read: dict[Path, dict[Dependency, None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, source: Path, path: Path, *, is_system: bool = False, target: str = "") -> None:
        """Note that the compilation of `source` read the file: a pipeline, bitcode, a library."""
        with self._lock:
            self._read.setdefault(source, {})[Dependency(path, is_system, target)] = None

    def of(self, source: Path) -> tuple[Dependency, ...]:
        """Return the files noted for the source, sorted by path."""
        with self._lock:
            noted = list(self._read.get(source, ()))
        return tuple(sorted(noted, key=lambda dependency: str(dependency.path)))


class PlannedDepfile(Struct, frozen=True):
    """A dependency file to be written: its name (`-` for standard output), targets and sources."""

    file: str
    targets: tuple[str, ...]
    sources: tuple[Path, ...]


def plan_depfiles(options: CompileOptions) -> tuple[PlannedDepfile, ...]:
    """Return the dependency files of the invocation, named as clang names them.

    If one file is for several sources, because of `-MF` or the output of a link, clang leaves only the rule
    of the last source; here one rule contains all of them.
    """
    request, compiled = options.depfile, sources(options)
    links = options.mode is Mode.LINK
    # Like clang, write no dependency file for a link without sources unless -MF names it. The output of -M is
    # the rule itself.
    has_rule = request.is_wanted and options.mode is not Mode.RULE
    if not has_rule or not (compiled or (links and request.file)):
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
    """Return (output, source) for each source; without an output file of its own, the object that `-c` would write.

    That is so in a link, without an output, and for several files of device code.
    """
    compiled = sources(options)
    made = () if options.mode is Mode.LINK else final_outputs(options)
    if options.mode in {Mode.SYNTAX, Mode.DEVICE} and options.output is not None:
        made = (options.output,)
    if len(made) != len(compiled) or STANDARD_OUTPUT in made:
        made = tuple(Path(path.stem + ".o") for path in compiled)
    return tuple(zip(made, compiled, strict=True))


def _planned(
    options: CompileOptions, file: str, targets: Iterable[Path], of: tuple[Path, ...]
) -> PlannedDepfile:
    made = [*targets]
    # The C header is a target too, but not of sources that may include it: that would be a cycle.
    if options.header is not None and all(path.suffix in MLIR_SUFFIXES for path in of):
        made.append(options.header)
    named = options.depfile.targets or tuple(
        map(depfile.quote_for_make, dict.fromkeys(map(str, made)))
    )
    return PlannedDepfile(file, named, of)


def clang_depfile(output: Path) -> Path:
    """Return the path of the dependency file that clang writes for an object in the workspace."""
    return output.with_suffix(".d")


def notes_dependencies(options: CompileOptions) -> bool:
    """Return whether the invocation has to know which files were read."""
    return options.depfile.is_wanted or options.manifest is not None or options.why_rebuilt


def clang_depfile_arguments(options: CompileOptions, source: Path, output: Path) -> tuple[str, ...]:
    """Return the options that make clang write a dependency file, for a source that it preprocesses."""
    if not notes_dependencies(options) or source.suffix not in PREPROCESSED_SUFFIXES:
        return ()
    which = "-MD" if options.depfile.has_system_files else "-MMD"
    return (which, "-MF", str(clang_depfile(output)), "-MT", "object")


def read_dependencies(source: Path, output: Path, log: DependencyLog) -> tuple[Path, ...]:
    """Return the files that the compilation of `source` to `output` read, without `source`."""
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
    """Return the step that writes the dependency file."""
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
    """The decisions and results that the inputs of one invocation share.

    `search_path` is the PATH of the user. `source_time` is the timestamp to write, in seconds. `given` are the
    objects and static libraries of a link that contain offload data; `linked` are shared libraries and
    programs, whose device code is linked already. `library_functions` are the functions of MLIR's runner
    libraries that the inputs call. `compiled` maps each source to its output. `pending` contains the tasks that
    were started early, by output file. `parts` maps a source to the hashes of its modules, once they are known.
    `launched` is set if steps run under a launcher. `libdevice` overrides the one of the CUDA toolkit. `joint`
    lowers host and device code together and returns the files that it wrote.
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
        """Return the linking LLVM: its clang compiles and links."""
        return self.releases.llvm

    @property
    def mlir(self) -> LlvmToolchain:
        """Return the lowering LLVM."""
        return self.releases.mlir

    @property
    def libomptarget(self) -> Path | None:
        """Return the libomptarget to link with; None to link the runtime's fallback."""
        return None if self.options.no_libomptarget else self.llvm.libomptarget

    @property
    def consumer(self) -> int:
        """Return the major version of the linking LLVM, which may not be installed."""
        return self.releases.consumer

    @property
    def host_reader(self) -> int:
        """Return the release that reads the LLVM IR of host code: the linking one for -emit-llvm, else this clang."""
        return self.consumer if self.options.emit_llvm else self.llvm.version.major

    @property
    def for_clang(self) -> str:
        """Return the linking LLVM as the `--for-clang=` of a step spells it."""
        return self.options.for_clang if self.options.is_for_any_clang else str(self.consumer)

    def targets_of(self, kind: Kind) -> tuple[Target, ...]:
        """Return the targets of one offload kind."""
        return tuple(target for target in self.targets if target.kind is kind)

    def wait_for(self, file: Path) -> None:
        """Wait for a file whose task was started early; raise the error of the task."""
        if file in self.pending:
            self.pending[file].result()

    def text_for(self, reader: int, text: Path, source: Path, *, decides: bool = False) -> Path:
        """Return LLVM IR that release `reader` accepts: `text` itself if it is not older than the lowering LLVM.

        Raises CompatibilityError for a construct of `source` that cannot be downgraded to that release.
        """
        if reader >= self.mlir.version.major:
            return text
        output = text.with_name(f"{text.stem}.for{reader}.ll")
        step = step_downgrade.Downgrade(
            source=text, reader=reader, location=str(source), output=output
        )
        return self.executor.once(output, partial(self.executor.step, step, decides=decides))

    def is_lowered(self, text: Path) -> bool:
        """Wait for the joint lowering, if there is one; return whether it wrote this file."""
        return self.joint is not None and text in self.joint.result()


def host_command(context: BuildContext, source: Path, output: Path, *extra: str) -> Command:
    """Return the command by which the linking clang compiles a host file of any language."""
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
        # mlir-translate writes no triple and layout; clang's own apply.
        *(("-Wno-override-module",) if source.suffix in {".ll", ".bc"} else ()),
    )
    is_ir = source.suffix in {".ll", ".bc"}
    arguments = options.code_arguments if is_ir else options.compiler_arguments
    clang = str(context.llvm.tool("clang"))
    return Command(
        (clang, *form, *flags, *arguments, *extra, as_operand(str(source)), "-o", str(output))
    )


class Build(Struct, frozen=True):
    """An open build: its options, runner, temporary directory and job slots."""

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
        """Return the context of the build.

        `sources` maps a directory of the workspace to the user's file. With a launcher, cacheable steps run as
        separate processes.
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
    """Open a build. By default the options and a jobserver limit the number of concurrent programs.

    Must be called before any file is opened. Raises InputOutputError if the workspace cannot be created.
    """
    with (
        contextlib.closing(slots or choose_slots(options)) as taken,
        open_workspace(options.save_temps) as workspace,
    ):
        yield Build(options, runner, workspace, taken)
