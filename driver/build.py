"""Compile every input and link: the main verb."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mlir_offload.driver.choose import choose_release, choose_targets, choose_toolkit, places_of
from mlir_offload.driver.compile import compile_mlir, host_command
from mlir_offload.driver.context import BuildContext
from mlir_offload.driver.execute import Executor
from mlir_offload.driver.link import link
from mlir_offload.driver.options import (
    COMPILED_SUFFIXES,
    LINKED_SUFFIXES,
    MLIR_SUFFIXES,
    CompileOptions,
    Mode,
    parse_arguments,
)
from mlir_offload.driver.parallel import in_parallel
from mlir_offload.driver.report import render_times, show
from mlir_offload.driver.steps import step_functions
from mlir_offload.driver.workspace import check_output, open_workspace
from mlir_offload.offload.objects import ObjectContents, read_objects
from mlir_offload.toolchain.errors import InputOutputError, UsageError
from mlir_offload.toolchain.process import Command, Runner
from mlir_offload.toolchain.target import Kind, Target

_OUTPUT_SUFFIX = {
    Mode.OBJECT: ".o",
    Mode.ASSEMBLY: ".s",
    Mode.LLVM_TEXT: ".ll",
    Mode.LLVM_BITCODE: ".bc",
}


def build(arguments: Sequence[str], runner: Runner) -> None:
    """Do what the command line asks for. Raises MlirOffloadError; no output is written then."""
    options = parse_arguments(arguments)
    with open_workspace(options.save_temps) as workspace:
        build_in(options, workspace, runner)


def build_in(options: CompileOptions, workspace: Path, runner: Runner) -> Path:
    """Do what the options ask for, with intermediate files in the workspace; return the output."""
    for path in options.inputs:
        _check_input(path)
    outputs = _final_outputs(options)
    for output in outputs:
        check_output(output)
    context = make_context(options, workspace, runner)
    if options.mode is Mode.LINK:
        made = [link(context, partial(compile_inputs, context, workspace), workspace)]
    else:
        made = list(compile_inputs(context, workspace).values())
    for source, output in zip(made, outputs, strict=True):
        context.executor.place(source, output)
    if options.time_report:
        show(render_times(context.executor.times))
    return outputs[0]


def make_context(options: CompileOptions, workspace: Path, runner: Runner) -> BuildContext:
    """Choose tools and targets for the command line."""
    executor = Executor(
        runner,
        step_functions(),
        show,
        jobs=options.jobs,
        temporary=workspace,
        verbose=options.verbose,
        dry_run=options.dry_run,
    )
    places = places_of(options)
    llvm = choose_release(options, places, runner)
    given = _read_given(options)
    targets = _targets(options, given)
    kinds = {str(target.kind) for target in targets}.union(*(item.kinds for item in given))
    cuda = choose_toolkit(places, runner) if Kind.CUDA in kinds else None
    if cuda is not None:
        from mlir_offload.toolchain.ptx import ptx_isa_for

        # Refuses what LLVM or ptxas does not know before any work is done.
        for target in targets:
            if target.kind is Kind.CUDA:
                ptx_isa_for(target.arch, llvm.version.major, cuda)
    executor.note(Command(("mkdir", "-p", str(workspace))))
    return BuildContext(options, llvm, cuda, targets, executor, workspace, given)


def _read_given(options: CompileOptions) -> tuple[ObjectContents, ...]:
    """Look for device code in the objects and libraries that are given."""
    if options.mode is not Mode.LINK:
        return ()
    paths = [path for path in options.inputs if path.suffix in LINKED_SUFFIXES or _is_versioned(path)]
    return tuple(item for path in paths for item in read_objects(path))


def _targets(options: CompileOptions, given: Sequence[ObjectContents]) -> tuple[Target, ...]:
    """Return the targets to compile for; none where there is nothing to compile for a device.

    Objects that call the runtime but bring no device code need a device all the same.
    """
    has_mlir = any(path.suffix in MLIR_SUFFIXES for path in options.inputs)
    needs_device = any(item.runtime_symbols for item in given) and not any(item.kinds for item in given)
    return choose_targets(options.offload_archs) if has_mlir or needs_device else ()


def compile_inputs(context: BuildContext, workspace: Path) -> dict[Path, Path]:
    """Compile every input that is no object; return the object of each, in their order."""
    options = context.options
    suffix = _OUTPUT_SUFFIX.get(options.mode, ".o")
    sources = [path for path in options.inputs if path.suffix not in LINKED_SUFFIXES]
    made = [workspace / f"{number}" / f"{_safe(path.stem)}{suffix}" for number, path in enumerate(sources)]
    in_parallel([partial(_compile, context, *pair) for pair in zip(sources, made, strict=True)])
    return dict(zip(sources, made, strict=True))


def _compile(context: BuildContext, source: Path, output: Path) -> None:
    context.executor.make_directory(output.parent)
    if source.suffix in MLIR_SUFFIXES:
        compile_mlir(context, source, output.parent, output)
    else:
        context.executor.tool(host_command(context, source, output), output)


def _safe(stem: str) -> str:
    """Return the stem as far as it is plain: a comma would end a value of `--image=`."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in stem)


def _check_input(path: Path) -> None:
    if not path.exists():
        msg = f"{path}: no such file"
        raise InputOutputError(msg, hint="check the name and the current directory")
    if path.is_dir():
        msg = f"{path}: is a directory"
        raise InputOutputError(msg, hint="name the files in it")
    if path.suffix not in MLIR_SUFFIXES | COMPILED_SUFFIXES | LINKED_SUFFIXES and not _is_versioned(path):
        msg = f"{path}: unknown kind of file"
        raise UsageError(msg, hint="inputs end in .mlir, .o, .a, .so, .c, .cpp, .ll or .bc")


def _is_versioned(path: Path) -> bool:
    """Say whether the name is that of a shared library with a version, as libx.so.1."""
    return ".so." in path.name


def _final_outputs(options: CompileOptions) -> tuple[Path, ...]:
    if options.mode is Mode.LINK:
        return (options.output or Path("a.out"),)
    if options.output is not None:
        return (options.output,)
    suffix = _OUTPUT_SUFFIX[options.mode]
    return tuple(Path(path.stem + suffix) for path in options.inputs if path.suffix not in LINKED_SUFFIXES)
