"""Write the C header, dependency files and compile commands; remove stale outputs if the build fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile import compile_commands, gpu_cpp, normalize
from mlir_offload.driver.compile.context import (
    STANDARD_STREAM,
    BuildContext,
    compiled_objects,
    depfile_step,
    host_command,
    plan_depfiles,
)
from mlir_offload.driver.option import link_line
from mlir_offload.driver.option.checks import OutputFile, check_files, check_kept
from mlir_offload.driver.option.command_line import (
    GPU_CPP,
    MLIR_SUFFIXES,
    STANDARD_OUTPUT,
    CompileOptions,
    Mode,
    all_outputs,
    final_outputs,
    read_besides,
)
from mlir_offload.driver.option.compile_options import DepfileRequest
from mlir_offload.driver.step import split_file
from mlir_offload.driver.system.workspace import check_output, publish
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError

# Options for which clang writes files next to the object; the object may contain their names.
_DUMPS = (
    "-gsplit-dwarf",
    "--coverage",
    "-coverage",
    "-ftest-coverage",
    "-fprofile-arcs",
    "-ftime-trace",
)
_RECORD, _STACK_USAGE = "-fsave-optimization-record", "-fstack-usage"
# LLVM 17 added -dumpdir (clang/docs/ReleaseNotes.rst of 17).
_FIRST_WITH_DUMPDIR = 17


def check_outputs(options: CompileOptions, others: Sequence[Path] = ()) -> None:
    """Raise InputOutputError if an output cannot be written.

    Raises UsageError for an output that is an input, one of the `others` that are read, or a second
    output.
    """
    outputs = tuple(_outputs(options))
    inputs = (*_inputs(options), *others)
    check_files(inputs, outputs)
    check_kept(options.save_temps, inputs)
    for output in outputs:
        if output.path != STANDARD_OUTPUT:
            check_output(output.path)


def _inputs(options: CompileOptions) -> Iterator[Path]:
    """Yield the files that the build reads because the command line names them."""
    yield from options.inputs
    yield from read_besides(options)
    if options.mode is Mode.LINK:
        written = set(link_line.linker_outputs(options.link_items))
        paths = (item.path for item in link_line.parse_link_line(options.link_items))
        yield from (path for path in paths if path and path not in written)


def _outputs(options: CompileOptions) -> Iterator[OutputFile]:
    """Yield the files that the build will write."""
    default = "-o" if options.output is not None else f"the default of {options.mode.value}"
    named = options.mode is not Mode.HEADER
    for path in final_outputs(options) if named else ():
        yield OutputFile(path, default)
    if options.header is not None:
        yield OutputFile(options.header, "--emit-header=")
    for path in depfile_places(options):
        yield OutputFile(path, "-MF" if options.depfile.file else "-MD")
    if options.compile_commands is not None:
        yield OutputFile(options.compile_commands, "-MJ")
    if options.manifest is not None:
        yield OutputFile(options.manifest, "--manifest=")
    if options.mode is Mode.LINK:
        for path in link_line.linker_outputs(options.link_items):
            yield OutputFile(path, "-Wl,")


def depfile_places(options: CompileOptions) -> tuple[Path, ...]:
    """Return the dependency files to be written, except standard output."""
    files = (planned.file for planned in plan_depfiles(options))
    return tuple(Path(file) for file in files if file != STANDARD_STREAM)


@contextlib.contextmanager
def remove_outputs_on_failure(options: CompileOptions) -> Iterator[None]:
    """Remove older outputs if the build fails, as clang does, so that no stale file is used."""
    try:
        yield
    except MlirOffloadError:
        if not options.dry_run:
            for output in all_outputs(options):
                if output != STANDARD_OUTPUT:
                    _remove(output)
        raise


def _remove(output: Path) -> None:
    with contextlib.suppress(OSError):
        if output.is_file():
            output.unlink()


def write_compile_commands(context: BuildContext) -> None:
    """Write the compile command of each source, even if its compilation will fail."""
    options = context.options
    if options.compile_commands is None or options.dry_run:
        return

    alone = replace(context, options=replace(options, depfile=DepfileRequest()))
    entries = [
        _compile_entry(alone, source, output) for output, source in compiled_objects(options)
    ]
    made = context.workspace / "compile_commands.json"
    made.write_text(compile_commands.render_entries(entries, Path.cwd()), encoding="utf-8")
    publish(made, options.compile_commands)


def _compile_entry(
    context: BuildContext, source: Path, output: Path
) -> compile_commands.CompileEntry:

    if source.suffix in MLIR_SUFFIXES:
        return compile_commands.mlir_entry(context.options, source, output)
    if source.suffix in GPU_CPP:
        return compile_commands.CompileEntry(
            str(source), str(output), gpu_cpp.gpu_cpp_command(context, source, output).argv
        )

    return compile_commands.CompileEntry(
        str(source), str(output), host_command(context, source, output).argv
    )


def write_depfiles(context: BuildContext) -> None:
    """Write the dependency files in the workspace and publish each."""
    for number, planned in enumerate(plan_depfiles(context.options)):
        made = context.workspace / f"rule{number}.d"
        step = depfile_step(context.options, planned, context.dependencies, context.compiled, made)
        context.executor.step(step)
        if planned.file == STANDARD_STREAM:
            context.executor.print_file(made)
        else:
            context.executor.place(made, Path(planned.file))


def dump_arguments(context: BuildContext, source: Path) -> Iterator[str]:
    """Yield arguments that make clang write its additional files next to the user's output.

    The object itself is written to the workspace. Raises CompatibilityError if clang lacks -dumpdir.
    """
    options = context.options
    words = {word.partition("=")[0] for word in options.compiler_arguments}
    output = options.output or Path(f"{source.stem}.o" if options.stop_after_compile else "a.out")
    is_plain = options.stop_after_compile and output.stem == source.stem
    prefix = f"{output.parent}/" if is_plain else f"{output.with_suffix('')}-"
    if named := words.intersection(_DUMPS):
        if context.consumer < _FIRST_WITH_DUMPDIR:
            msg = f"clang {context.consumer} cannot write the files of {min(named)} next to the output"
            raise CompatibilityError(
                msg, hint="use LLVM 17 or newer, or compile C and C++ with clang"
            )
        yield from ("-dumpdir", prefix)
    if _RECORD in words and "-foptimization-record-file" not in words:
        record = f"{prefix if options.stop_after_compile else ''}{source.stem}.opt.yaml"
        yield f"-foptimization-record-file={record}"
    if _STACK_USAGE in words:
        yield from ("-Xclang", "-stack-usage-file", "-Xclang", f"{prefix}{source.stem}.su")


def make_header(context: BuildContext) -> Path:
    """Write the header for `--emit-header=` in the workspace; return its path."""
    programs = {
        source: normalize.normalized(made.parent)
        for source, made in context.compiled.items()
        if source.suffix in MLIR_SUFFIXES
    }
    for normal in programs.values():
        context.wait_for(normal)
    # In a separate directory, because the header may have any name.
    output = context.workspace / "header" / (context.options.header or Path()).name
    context.executor.make_directory(output.parent)
    step = split_file.Header(
        sources=tuple(programs.values()), programs=tuple(programs), output=output
    )
    context.executor.step(step)
    return output
