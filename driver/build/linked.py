"""Builds that link: programs, and objects whose device code is linked already."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import DeviceModule
from mlir_offload.driver.link import non_rdc_object, program, runtime
from mlir_offload.driver.option.command_line import Mode
from mlir_offload.driver.system.parallel import Threads


def start_runtime(context: BuildContext, threads: Threads) -> None:
    """Have the host runtime compiled while the sources are."""
    needed = runtime.host_runtime(context)
    if needed.kinds:
        work = partial(runtime.compile_runtime, context, needed)
        context.pending[needed.object] = threads.submit(work)


def link_program(context: BuildContext, device: Sequence[DeviceModule]) -> Path:
    """Link a program or a library, these device modules compiled by this call."""
    return program.link(context, device)


def finish_non_rdc(
    context: BuildContext, source: Path, made: Path, device: Sequence[DeviceModule], output: Path
) -> None:
    """Finish the object of a source with its runtime, its device code linked."""
    if device:
        non_rdc_object.make_non_rdc_object(context, source, made, device, output)
    elif context.options.mode is Mode.OBJECT:
        non_rdc_object.add_memref_copy(context, made, output)
    else:
        context.executor.place(made, output)
