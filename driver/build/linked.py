"""Builds that link: programs, and objects with linked device code."""

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
    """Start compiling the host runtime concurrently with the sources."""
    needed = runtime.host_runtime(context)
    if needed.kinds:
        work = partial(runtime.compile_runtime, context, needed)
        context.pending[needed.object] = threads.submit(work)


def link_program(context: BuildContext, device: Sequence[DeviceModule]) -> Path:
    """Link a program or a library. `device` contains the device modules that this invocation compiled."""
    return program.link(context, device)


def finish_non_rdc(
    context: BuildContext, source: Path, made: Path, device: Sequence[DeviceModule], output: Path
) -> None:
    """Link the device code of the object of a source (`-fno-gpu-rdc`) and add the runtime."""
    if device:
        non_rdc_object.make_non_rdc_object(context, source, made, device, output)
    elif context.options.mode is Mode.OBJECT:
        non_rdc_object.add_memref_copy(context, made, output)
    else:
        context.executor.place(made, output)
