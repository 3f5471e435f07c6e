"""The C header of a call: one for all of its `.mlir` files."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.normalize import normalized
from mlir_offload.driver.option.command_line import MLIR_SUFFIXES
from mlir_offload.driver.step.split_file import Header


def make_header(context: BuildContext) -> Path:
    """Write the header that `--emit-header=` asks for, in the workspace."""
    programs = {
        source: normalized(made.parent)
        for source, made in context.compiled.items()
        if source.suffix in MLIR_SUFFIXES
    }
    for normal in programs.values():
        context.wait_for(normal)
    # In a directory of its own, as it may bear any name.
    output = context.workspace / "header" / (context.options.header or Path()).name
    context.executor.make_directory(output.parent)
    step = Header(sources=tuple(programs.values()), programs=tuple(programs), output=output)
    context.executor.step(step)
    return output
