"""The first step of each `.mlir` file; it starts before the rest of the compiler is loaded."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option import pipeline_file
from mlir_offload.toolchain.errors import InputOutputError, MlirOffloadError
from mlir_offload.toolchain.process import Completed
from mlir_offload.translate import recovery
from mlir_offload.translate.input_pipeline import (
    INTERPRETER,
    TENSOR_PIPELINE,
    InputPipeline,
    check_source,
    detect_pipeline,
    load_pipeline,
    offloadable,
)
from mlir_offload.translate.lower import normalize_command


def normalized(directory: Path) -> Path:
    """Return the path of the normalised program."""
    return directory / "normal.mlir"


def normalize(context: BuildContext, source: Path, directory: Path) -> None:
    """Outline the kernels of a program and print it in generic form, whatever its input form.

    Raises SourceError, with its location in `source`, for an invalid program.
    """
    content = check_source(source)
    pipeline = choose_pipeline(context, source, content)
    for path in pipeline.files:
        context.dependencies.add(source, path)
    context.executor.make_directory(directory)
    output = normalized(directory)
    context.executor.tool(
        normalize_command(context.mlir, source, output, content=content, pipeline=pipeline),
        output,
        decides=True,
        diagnose=partial(_all_errors, context, source, directory),
    )


def _all_errors(
    context: BuildContext, source: Path, directory: Path, completed: Completed
) -> MlirOffloadError:
    run = context.executor.runner.run
    return recovery.condense_all(completed, source=source, directory=directory, run=run)


def works_on_host_memory(context: BuildContext, source: Path) -> bool:
    """Return whether the kernels are offloaded host code, which accesses host memory."""
    given = context.options.pipeline
    base = (
        pipeline_file.read_pipeline(given).base if given else detect_pipeline(source.read_bytes())
    )
    return load_pipeline(base, context.mlir.version.major).is_on_host_memory


def runs_transform_scripts(context: BuildContext) -> bool:
    """Return whether the user's passes run transform scripts in the program."""
    given = context.options.pipeline
    passes = pipeline_file.read_pipeline(given).passes if given else ()
    return any(name.startswith(INTERPRETER) for name in passes)


def choose_pipeline(context: BuildContext, source: Path, content: bytes) -> InputPipeline:
    """Return the pipeline that the user named, or the one that the program needs, which is noted."""
    if context.options.pipeline:
        return _with_plugins(context, pipeline_file.read_pipeline(context.options.pipeline))
    name = detect_pipeline(content)
    operation = offloadable(content)
    if name == TENSOR_PIPELINE:
        show_note(f"{source} works on tensors: lowering it with --pipeline={name}")
    elif operation:
        hint = f"--pipeline={TENSOR_PIPELINE} offloads it"
        show_note(f"{source} has no GPU code: {operation} runs on the host; {hint}")
    return _with_plugins(context, InputPipeline(name))


def _with_plugins(context: BuildContext, pipeline: InputPipeline) -> InputPipeline:
    """Return a pipeline with the plugins of the command line. Raises InputOutputError for a missing one."""
    arguments = context.options.mlir_arguments
    files = [Path(word.partition("=")[2]) for word in arguments]
    for path in files:
        if not path.is_file():
            msg = f"cannot read the plugin {path}: no such file"
            raise InputOutputError(msg, hint="name the shared library of the dialect or passes")
    return replace(pipeline, arguments=arguments, files=(*pipeline.files, *files))
