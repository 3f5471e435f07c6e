"""The main subcommand: compile every input, and link."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlir_offload.driver.build import (
    device_only,
    kept_call,
    linked,
    manifest,
    staged,
    unlisted,
    why,
)
from mlir_offload.driver.build import preprocess as build_preprocess
from mlir_offload.driver.build import source as build_source
from mlir_offload.driver.compile import embed, guard, kind_build
from mlir_offload.driver.compile import normalize as compile_normalize
from mlir_offload.driver.compile.context import Build, BuildContext, open_build
from mlir_offload.driver.compile.outputs import (
    check_outputs,
    make_header,
    remove_outputs_on_failure,
    write_compile_commands,
    write_depfiles,
)
from mlir_offload.driver.message import text as message_text
from mlir_offload.driver.message.report import show, show_note
from mlir_offload.driver.option import link_line
from mlir_offload.driver.option.checks import check_flags, warn_of_unused
from mlir_offload.driver.option.command_line import (
    MLIR_SUFFIXES,
    STANDARD_INPUT,
    CompileOptions,
    Mode,
    attached_archs,
    check_input,
    compiled_files,
    final_outputs,
    has_device_code,
    parse_arguments,
)
from mlir_offload.driver.step import launcher as step_launcher
from mlir_offload.driver.system.parallel import JobSlots, Threads, pool, run_concurrently
from mlir_offload.driver.system.tool_watch import ToolWatch, knowing_versions, tool_files
from mlir_offload.driver.tools import cache_key, toolchain_id
from mlir_offload.driver.tools.choose import (
    FoundTools,
    choose_rocm_for,
    choose_targets,
    choose_toolkit_for,
    places_of,
)
from mlir_offload.driver.tools.releases import Releases, choose_releases, learn_of_objects
from mlir_offload.offload.kind_format import check_targets
from mlir_offload.toolchain.errors import MlirOffloadError, ToolFailedError, VerificationError
from mlir_offload.toolchain.process import Command, Runner
from mlir_offload.toolchain.tables import LEARNED, known_release
from mlir_offload.toolchain.target import HOST, Kind, Target, all_kinds, uses_cuda, uses_rocm
from mlir_offload.translate import prefix_map

if TYPE_CHECKING:
    from mlir_offload.driver.compile.kind_build import DeviceModule
    from mlir_offload.driver.step.launcher import Launcher
    from mlir_offload.offload.link.objects import ObjectContents


# Modules that every compilation needs, in the order of use.
_ALWAYS = (
    "mlir_offload.driver.step.split_file",
    "mlir_offload.translate.legalize.split",
    "mlir_offload.translate.host.module",
)
# With a launcher, the modules of a kind are used by other processes, if at all.
_LAUNCHED = ("mlir_offload.driver.compile.launched", "mlir_offload.toolchain.ptx")
_LATE = (
    "mlir_offload.driver.step.image_file",
    "mlir_offload.offload.host.embed",
)
_LINK = ("mlir_offload.driver.link.program",)
_TEXT_ONLY = frozenset((Mode.PREPROCESSED, Mode.RULE))
_EARLY = _TEXT_ONLY | {Mode.SYNTAX, Mode.DEVICE}
# The outputs of these modes do not depend on a device, except those of C++ with kernels.
_HOST_ONLY = _TEXT_ONLY | {Mode.SYNTAX, Mode.HEADER}


def build(arguments: Sequence[str], runner: Runner) -> None:
    """Run the command line. Raises MlirOffloadError; then no output is written."""
    options = parse_arguments(arguments)
    if options.spelled:
        # Most invocations give only a device and an output, and skip this import.
        warn_of_unused(options)
    if "CCACHE_DISABLE" in os.environ:
        # Only ccache sets this variable for its compiler; other invocations skip this import.
        cache_key.check_cache_key(options, os.environ, runner)
    with _named_inputs(options) as named, open_build(named, runner) as opened:
        context = build_opened(opened)
        if (context.launched is not None or options.why_rebuilt) and not options.dry_run:
            _explain(context)


def _named_inputs(options: CompileOptions) -> contextlib.AbstractContextManager[CompileOptions]:
    """Return the options with inputs whose extensions match their language."""
    if not options.languages and STANDARD_INPUT not in options.inputs:
        return contextlib.nullcontext(options)

    return staged.staged_inputs(options)


def build_opened(opened: Build) -> BuildContext:
    """Build what the options request; errors name the sources as the user did."""
    with _named_as_given(opened.options):
        return build_with(opened)


@contextlib.contextmanager
def _named_as_given(options: CompileOptions) -> Iterator[None]:
    """Undo `-ffile-prefix-map` in the locations of errors, so that they name the sources as the user did."""
    try:
        yield
    except MlirOffloadError as error:
        if options.prefix_maps:
            names = [str(path) for path in options.inputs]
            error.relocate(
                lambda place: prefix_map.unmap_location(place, names, options.prefix_maps)
            )
        raise


def build_with(opened: Build) -> BuildContext:
    """Build what the options request; errors contain the locations after prefix maps."""
    options = opened.options
    if options.mode is Mode.LINK:
        link_line.forget_link_lines()
    for path in options.inputs:
        check_input(path)
    check_outputs(options)
    context = _context(opened)
    if options.compiler_arguments:
        # Most invocations have none, and skip this import.
        unlisted.check_unlisted(context)
    write_compile_commands(context)
    if context.given or not all(path.suffix in MLIR_SUFFIXES for path in options.inputs):
        # If all inputs are MLIR, the tools that lower them detect errors.
        guard.guard_inputs(context)
    tools = ToolWatch()
    for llvm in {context.mlir, context.llvm}:
        tools.add_paths(tool_files(llvm, context.cuda, context.rocm))
    with remove_outputs_on_failure(options):
        with tools.unchanged(), _assumptions(context):
            kept = None if context.launched is None else kept_call.find_kept(context)
            found = None if kept is None else kept.take()
            finished = found or _make(context)
        if kept is not None and found is None:
            kept.keep()
        # Written before the outputs: an output newer than its sources must have its dependency file.
        write_depfiles(context)
        for made, output in zip(finished, final_outputs(options), strict=True):
            context.executor.place(made, output)
        if options.manifest is not None:
            manifest.write_manifest(context)
    if options.time_report:
        show(message_text.render_times(context.executor.times))
    return context


@contextlib.contextmanager
def _assumptions(context: BuildContext) -> Iterator[None]:
    """Add to a link error the assumption that was made about an LLVM release that no table knows."""
    try:
        yield
    except (ToolFailedError, VerificationError) as error:
        release = known_release(context.consumer)
        if release is not None and context.options.mode is Mode.LINK:
            error.hint = "; ".join(filter(None, (error.hint, release.assumption)))
        raise


def _explain(context: BuildContext) -> None:
    """Write the records of the outputs; print the changes if the user asked for them."""
    for line in why.explain_builds(context, final_outputs(context.options)):
        if context.options.why_rebuilt:
            show_note(line)


def _make(context: BuildContext) -> list[Path]:
    """Return the finished files in the workspace, one per output."""
    with pool() as threads:
        # These tools run while Python loads the rest of the compiler.
        _start_early(context, threads)
        if context.options.mode in _EARLY:
            return _stop_early(context)
        if context.options.header is not None:
            header = make_header(context)
            if context.options.mode is Mode.HEADER:
                return [header]
            # C and C++ sources of the same invocation may include it.
            context.executor.place(header, context.options.header)
        kinds = frozenset(target.kind for target in context.targets)
        links = context.options.mode is Mode.LINK
        device: tuple[DeviceModule, ...] = ()
        # A link without sources needs none of the modules that compile.
        if context.compiled:
            _preload(kinds, launched=context.launched is not None, links=links)
            device = build_source.compile_inputs(context)
        if links:
            return [linked.link_program(context, device)]
        return list(context.compiled.values())


def _preload(kinds: frozenset[Kind], *, launched: bool = False, links: bool = False) -> None:
    """Start importing what a compilation for these kinds needs, in a background thread."""
    names = modules_for(kinds, launched=launched, links=links)
    threading.Thread(target=_load, args=(names,), daemon=True).start()


def modules_for(
    kinds: frozenset[Kind], *, launched: bool = False, links: bool = False
) -> Iterator[str]:
    """Yield the modules that a compilation for these kinds needs. Each kind lists its own."""
    yield from _ALWAYS
    own = tuple(kind for kind in all_kinds() if kind in kinds)
    for kind in own:
        yield kind_build.BUILDS.module(kind)
        yield from () if launched else kind_build.build_of(kind).modules
    yield from _LAUNCHED if launched else ()
    yield from _LATE
    if links:
        yield from _LINK
        for kind in own:
            yield from kind_build.build_of(kind).link_modules


def _load(names: Iterator[str]) -> None:
    # An error, as without further file descriptors, is raised again where the module is needed.
    with contextlib.suppress(Exception):
        for name in names:
            import_module(name)


def _stop_early(context: BuildContext) -> list[Path]:
    """Run modes without compilation or without host code; return the files to publish as -o."""
    if context.options.mode is Mode.DEVICE:
        device_only.compile_device_only(context)
        return []

    if context.options.mode is Mode.SYNTAX:
        build_preprocess.check_syntax(context)
        return []
    return build_preprocess.preprocess(context)


def _start_early(context: BuildContext, threads: Threads) -> None:
    """Start the steps without prerequisites: the first step of each `.mlir` file, and the runtime."""
    for source, made in context.compiled.items():
        if source.suffix in MLIR_SUFFIXES and context.options.mode not in _TEXT_ONLY:
            task = threads.submit(
                partial(compile_normalize.normalize, context, source, made.parent)
            )
            context.pending[compile_normalize.normalized(made.parent)] = task
    if context.launched is not None:
        threads.submit(partial(context.launched.prepare, context.targets))
    makes_non_rdc = context.options.mode is Mode.OBJECT and context.options.makes_non_rdc_objects
    makes_program = context.options.mode is Mode.LINK and not context.options.links_to_object
    if makes_program or makes_non_rdc:
        linked.start_runtime(context, threads)


def _context(opened: Build) -> BuildContext:
    """Choose tools and targets, and return the context of the build."""
    options = opened.options
    launcher = _launcher(options)
    contents = link_line.read_link_inputs(options) if options.mode is Mode.LINK else ()
    given = tuple(item for item in contents if item.is_relocatable and item.has_offloading)
    finder = knowing_versions(opened.runner) if launcher is None else _remembering(opened.runner)
    linked = tuple(item for item in contents if not item.is_relocatable)
    learn_of_objects((*given, *linked))
    tools = _find_tools(options, finder, given, is_launched=launcher is not None)
    if options.embed_runtime:
        embed.check_embedding(options, tools.releases)
    check_flags(options, tools.targets, given)
    _note_consumer(tools.releases)
    compiled = compiled_files(options, opened.workspace)
    sources = {made.parent: source for source, made in compiled.items()}
    context = opened.context(tools, sources=sources, launcher=launcher)
    context.executor.note(Command(("mkdir", "-p", str(opened.workspace))))
    learned = known_release(tools.releases.consumer)
    if learned is not None:
        # The steps that -### prints need what the driver has learned about this release.
        context.executor.note(Command(("export", f"{LEARNED}={learned.text}")))
    called = frozenset[str]().union(*(item.library_functions for item in contents))
    return replace(context, given=given, linked=linked, library_functions=called, compiled=compiled)


def _find_tools(
    options: CompileOptions, finder: Runner, given: Sequence[ObjectContents], *, is_launched: bool
) -> FoundTools:
    """Find the tools for the targets and for the kinds of the linked objects."""
    places = places_of(options)
    targets = _targets(options, given)
    kinds = {target.kind for target in targets}.union(*(item.device_kinds for item in given))
    early = "compile.normalize" if has_device_code(options) else "link.program"
    (releases, cuda), _ = run_concurrently(
        partial(
            run_concurrently,
            partial(choose_releases, options, places, finder, kinds=kinds),
            partial(choose_toolkit_for, options, places, finder, needed=uses_cuda(kinds)),
        ),
        # Imported while the version queries run; a cached invocation does not need the module.
        (lambda: None) if is_launched else partial(import_module, f"mlir_offload.driver.{early}"),
    )
    check_targets(targets, releases.makers(cuda, is_assembled=options.needs_ptxas))
    rocm = choose_rocm_for(places, needed=uses_rocm(kinds))
    return FoundTools(places, releases, targets, cuda, rocm)


def _targets(options: CompileOptions, given: Sequence[ObjectContents]) -> tuple[Target, ...]:
    """Return the targets: none if the invocation involves no device."""
    # Objects that call the runtime but contain no device code still require a device.
    is_for_device = options.mode not in _HOST_ONLY or options.has_gpu_cpp
    needs_device = (has_device_code(options) and is_for_device) or (
        any(item.calls_device for item in given) and not any(item.kinds for item in given)
    )
    archs = options.offload_archs or attached_archs(options)
    archs = archs or ((HOST,) if options.sanitizer else ())
    return choose_targets(archs) if needs_device else ()


def _note_consumer(releases: Releases) -> None:
    if not releases.is_consumer_here:
        show_note(
            f"LLVM {releases.consumer} is not installed: LLVM {releases.mlir.version.major} "
            "compiles for it, device code included"
        )


def _launcher(options: CompileOptions) -> Launcher | None:
    """Return the launcher of the steps. Without one, its module is not loaded."""
    names = {"MLIR_OFFLOAD_LAUNCHER", "MLIR_OFFLOAD_CACHE"}
    if options.launcher is None and options.cache is None and names.isdisjoint(os.environ):
        return None

    return step_launcher.choose_launcher(options, os.environ)


def _remembering(runner: Runner) -> Runner:

    return toolchain_id.RememberingRunner(runner)


def build_trial(arguments: Sequence[str], runner: Runner) -> None:
    """Run a command line without the user's configuration. Raises MlirOffloadError."""
    with open_build(parse_arguments(arguments), runner, slots=JobSlots(1)) as opened:
        build_with(opened)
