"""The subcommand `build`: bring everything in a manifest up to date."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from mlir_offload.driver.message.report import report, show
from mlir_offload.driver.option.checks import OutputFile, check_files
from mlir_offload.driver.option.click_command import PATH, command
from mlir_offload.driver.option.config import find_files
from mlir_offload.driver.project import clean as project_clean
from mlir_offload.driver.project import emit as project_emit
from mlir_offload.driver.project import page, remote_engine
from mlir_offload.driver.project import store as project_store
from mlir_offload.driver.project.engine import LocalEngine
from mlir_offload.driver.project.file import Project, read_project
from mlir_offload.driver.project.graph import ProjectGraph, plan_project
from mlir_offload.driver.project.progress import open_progress
from mlir_offload.driver.project.report import (
    BuildRecord,
    count_outcomes,
    write_report,
    write_trace,
)
from mlir_offload.driver.project.run import (
    ProjectRun,
    StepEngine,
    StepOutcome,
    StepResult,
    stale_steps,
)
from mlir_offload.driver.project.snapshot import Asked, count_current, write_snapshot
from mlir_offload.driver.project.state import ProjectState, open_state
from mlir_offload.driver.project.tools import ToolFinder
from mlir_offload.driver.remote import address
from mlir_offload.driver.step.launcher import CACHE_VARIABLE, LAUNCHER_VARIABLE
from mlir_offload.driver.system.jobserver import Announcement, find_jobserver
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.driver.tools import choose
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.process import ProcessRunner

_MANIFEST = "offload.yaml"
_STANDARD_OUTPUT = Path("-")
_OUTPUTS = ("report", "trace", "timeline", "output", "store")
_CREDENTIALS = ("remote_ca", "remote_cert", "remote_key", "remote_token")


class BuildOptions(Struct, frozen=True):
    """The options of one invocation of `build`."""

    manifest: Path
    jobs: int | None
    keeps_going: bool
    variants: tuple[str, ...]
    report: Path | None
    trace: Path | None
    timeline: Path | None
    emit: str | None
    output: Path | None
    store: Path | None
    configuration: tuple[str, ...]
    launcher: str | None
    cache: bool | None
    is_verbose: bool
    dry_run: bool
    clean: bool
    prune: bool
    remote: str | None = None
    remote_ca: Path | None = None
    remote_cert: Path | None = None
    remote_key: Path | None = None
    remote_token: Path | None = None
    remote_platform: tuple[str, ...] = ()


def build_project(arguments: Sequence[str], runner: ProcessRunner) -> int:
    """Run `mlir-offload build`; return its exit status, that of the first step that failed.

    Raises MlirOffloadError for an error before any step runs.
    """
    # Must be called before a file is opened: see find_jobserver.
    announcement = find_jobserver(os.environ)
    options = parse_build_arguments(arguments, runner)
    if options is None:
        return 0
    _hand_on(options)
    if _has_nothing_to_do(options, runner):
        return 0
    project = read_project(options.manifest)
    # All steps run there, and flags name files relative to it.
    with contextlib.chdir(project.root):
        return _build(options, project, announcement, runner)


def _has_nothing_to_do(options: BuildOptions, runner: ProcessRunner) -> bool:
    """Return whether nothing changed since the last build, and report that, without making a plan."""
    others = (options.emit, options.report, options.trace, options.timeline)
    if any(others) or options.clean or options.prune or options.dry_run:
        return False
    started, root = time.monotonic(), options.manifest.parent.absolute()
    try:
        with contextlib.chdir(root):
            tools = ToolFinder(runner, find_files(options.configuration, os.environ, root))
            steps = count_current(_asked(options), tools)
    except OSError:
        return False
    if steps is None:
        return False
    if not report().options.quiet:
        summary = _summary(Counter({StepOutcome.CURRENT: steps}))
        show(f"mlir-offload: {summary} in {time.monotonic() - started:.1f} s")
    return True


def _asked(options: BuildOptions) -> Asked:
    return Asked(options.manifest.name, options.variants, os.environ)


def _build(
    options: BuildOptions, project: Project, announcement: Announcement, runner: ProcessRunner
) -> int:
    tools = ToolFinder(runner, find_files(options.configuration, os.environ, project.root))
    graph = plan_project(project, tools, options.variants)
    check_files(_files_read(graph), _files_written(options, graph))
    if options.emit:
        project_emit.emit_project(graph, options.emit, options.output)
        return 0
    own_jobs = options.jobs or os.cpu_count() or 1
    # If a jobserver was announced but is not reachable, only the implicit slot may be used.
    jobs = own_jobs if announcement.server or not announcement.is_announced else options.jobs or 1
    # With a server, -j is the number of concurrent actions, not of local programs.
    slots = JobSlots(jobs if options.remote is None else os.cpu_count() or 1, announcement.server)
    with (
        contextlib.closing(slots),
        open_state(project.root, project.root / project.directory) as state,
    ):
        if options.clean or options.prune or options.dry_run:
            return _without_steps(options, graph, state)
        if tools.kinds:
            _load_tools_once(runner, tools, project.root / project.directory)
        local = LocalEngine(project.root, runner, slots, state.lock, tools.kinds)
        with contextlib.closing(local), _chosen(options, local, graph, tools) as engine:
            record = _run(options, graph, state, engine, tools)
        if all(result.outcome is StepOutcome.CURRENT for result in record.results):
            write_snapshot(_asked(options), tools, graph, state)
    return _conclude(options, record)


def _load_tools_once(runner: ProcessRunner, tools: ToolFinder, folder: Path) -> None:
    """Load the tools of the first release into fork servers; most projects use only one release."""
    for releases in tools.releases[:1]:
        choose.load_tools_once(runner, releases, folder, is_dry=False)


def parse_build_arguments(arguments: Sequence[str], runner: ProcessRunner) -> BuildOptions | None:
    """Return the options; None if help was requested. Raises UsageError."""
    found = _command.result(arguments, runner)
    return found if isinstance(found, BuildOptions) else None


@command(
    "build",
    click.Argument(["manifest"], type=PATH, default=Path(_MANIFEST)),
    launcher=None,
    remote=None,
)
def _command(**values: object) -> BuildOptions:
    """Bring all targets of MANIFEST up to date (default: offload.yaml).

    Each step is a process. A step is repeated if the content of its inputs, its flags or its tools change. An
    interrupted build continues where it stopped.
    """
    config, no_config = values.pop("config"), values.pop("no_config")
    for name in (*_OUTPUTS, *_CREDENTIALS):
        path = values[name]
        if isinstance(path, Path) and path != _STANDARD_OUTPUT:
            # The steps run in another directory.
            values[name] = path.absolute()
    named = f"--config={Path(str(config)).absolute()}" if config else ""
    configuration = ("--no-config",) if no_config else tuple(filter(None, (named,)))
    return BuildOptions(configuration=configuration, **values)  # type: ignore[arg-type]  # click has checked them


def _hand_on(options: BuildOptions) -> None:
    """Pass --launcher= and --cache to the steps by environment variables."""
    if options.launcher is not None:
        os.environ[LAUNCHER_VARIABLE] = options.launcher
    if options.cache is not None:
        os.environ[CACHE_VARIABLE] = "on" if options.cache else "off"


def _without_steps(options: BuildOptions, graph: ProjectGraph, state: ProjectState) -> int:
    """Remove files, or show the steps that would run; return the exit status."""
    if options.dry_run:
        for step in stale_steps(graph, state):
            words = ("mlir-offload", *step.action.arguments)
            show(shlex.join(words) if options.is_verbose else step.label)
        return 0
    if options.clean:
        count = project_clean.clean_project(graph.project, state, options.variants)
    else:
        count = project_clean.prune_project(graph, state)
    if not report().options.quiet:
        show(f"mlir-offload: {count} files removed")
    return 0


def _files_read(graph: ProjectGraph) -> Iterator[Path]:
    yield Path(graph.project.manifest.name)
    for path in dict.fromkeys(path for step in graph.steps for path in step.action.reads):
        if path not in graph.makers:
            yield Path(path)


def _files_written(options: BuildOptions, graph: ProjectGraph) -> Iterator[OutputFile]:
    named = {"--report": options.report, "--trace": options.trace, "--timeline": options.timeline}
    for option, path in named.items():
        if path is not None:
            yield OutputFile(path, option)
    if options.emit and options.output is not None:
        yield OutputFile(options.output, "-o")
    for step in graph.steps:
        for output in step.action.outputs:
            yield OutputFile(Path(output), f"step {step.label}")


@contextlib.contextmanager
def _chosen(
    options: BuildOptions, local: LocalEngine, graph: ProjectGraph, tools: ToolFinder
) -> Iterator[StepEngine]:
    """Yield the engine for the options. Raises UsageError if they conflict."""
    if options.remote is not None:
        if options.store is not None:
            msg = "--store= and --remote= exclude each other"
            raise UsageError(msg, hint="leave --store= out: the server keeps results")

        keys = (options.remote_ca, options.remote_cert, options.remote_key, options.remote_token)
        remote = address.RemoteOptions(options.remote, *keys, options.remote_platform)
        with contextlib.closing(
            remote_engine.open_engine(remote, options.jobs or remote_engine.LANES, local, graph)
        ) as engine:
            yield engine
        return
    if options.store is None:
        yield local
        return

    yield project_store.StoringEngine(
        local, project_store.ResultStore(options.store), tools.watch.check
    )


def _run(
    options: BuildOptions,
    graph: ProjectGraph,
    state: ProjectState,
    engine: StepEngine,
    tools: ToolFinder,
) -> BuildRecord:
    started = time.time()
    began = time.monotonic()
    with open_progress(len(graph.steps), is_verbose=options.is_verbose) as progress:
        notices = (progress.ended, progress.started)
        run = ProjectRun(graph, state, engine, *notices, options.keeps_going, tools.watch)
        results = run.run()
    manifest = graph.project.manifest
    return BuildRecord(manifest, started, time.monotonic() - began, engine.lanes, tuple(results))


def _conclude(options: BuildOptions, record: BuildRecord) -> int:
    """Write the reports, print the summary, and return the exit status."""
    if options.report:
        write_report(record, options.report)
    if options.trace:
        write_trace(record, options.trace)
    if options.timeline:
        page.write_page(record, options.timeline)
    counts = count_outcomes(record.results)
    if not report().options.quiet:
        show(f"mlir-offload: {_summary(counts)} in {record.duration_s:.1f} s")
    failed = [result for result in record.results if result.outcome is StepOutcome.FAILED]
    if not failed:
        return 0
    show(f"mlir-offload: error: {_naming(failed)}")
    return min(failed, key=lambda result: result.start_s).exit_status


def _summary(counts: Counter[StepOutcome]) -> str:
    built = counts[StepOutcome.BUILT]
    words = [
        f"{built} step{'' if built == 1 else 's'} built",
        f"{counts[StepOutcome.CURRENT]} current",
    ]
    words += [f"{counts[name]} {name.value}" for name in _WRONG if counts[name]]
    return ", ".join(words)


_WRONG = (StepOutcome.FAILED, StepOutcome.SKIPPED)
_FEW = 10


def _naming(failed: Sequence[StepResult]) -> str:
    labels = [result.step.label for result in failed[:_FEW]]
    more = f" and {len(failed) - _FEW} more" if len(failed) > _FEW else ""
    what = "a step failed" if len(failed) == 1 else f"{len(failed)} steps failed"
    return f"{what}: {', '.join(labels)}{more}"
