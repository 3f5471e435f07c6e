"""Steps on device code for the CPU that run in process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlir_offload.driver.step_group import (
    PATH,
    kernels_option,
    located,
    output_option,
    read_text,
    source_argument,
    step,
    write_text,
)

if TYPE_CHECKING:
    from mlir_offload.translate.cpu import CpuDeviceSource

_libraries = click.option(
    "--device-lib", "libraries", type=PATH, multiple=True, help="bitcode that kernels may call"
)
_location = click.option("--location", default="", help="the file that errors name")


@step.command("cpu-ir")
@source_argument
@kernels_option
@_libraries
@_location
@click.option("--fibers", is_flag=True, help="a stack for each work-item, so that nothing is to do")
@output_option
def _cpu_ir(
    source: Path,
    kernels: tuple[str, ...],
    libraries: tuple[Path, ...],
    location: str,
    *,
    fibers: bool,
    output: Path,
) -> None:
    """Rewrite the LLVM IR of a device module for the CPU.

    A module whose kernels have barriers is not whole yet: it is written to OUTPUT.unsplit.ll, for
    opt and cpu-split.
    """
    with located(location):
        made = _cpu_source(source, kernels, libraries, fibers=fibers)
    write_text(unsplit(output) if made.needs_prepare else output, made.text)


@step.command("cpu-inline")
@source_argument
@output_option
def _cpu_inline(source: Path, output: Path) -> None:
    """Do in process what opt does between cpu-ir and cpu-split."""
    from mlir_offload.offload.llvm_ir import inline_in_process

    write_text(output, inline_in_process(read_text(source), location=str(source)))


@step.command("cpu-split")
@source_argument
@click.option("--from", "device", type=PATH, required=True, help="what cpu-ir read")
@kernels_option
@_libraries
@_location
@output_option
def _cpu_split(
    source: Path,
    device: Path,
    kernels: tuple[str, ...],
    libraries: tuple[Path, ...],
    location: str,
    output: Path,
) -> None:
    """Split kernels at their barriers, in what opt made of the output of cpu-ir."""
    from mlir_offload.translate.cpu import finish_cpu_ir

    with located(location):
        first = _cpu_source(device, kernels, libraries)
        write_text(output, finish_cpu_ir(read_text(source), first).text)


def _cpu_source(
    source: Path, kernels: Sequence[str], libraries: Sequence[Path], *, fibers: bool = False
) -> CpuDeviceSource:
    from mlir_offload.translate.cpu import cpu_device_ir

    defined = _defined(libraries)
    return cpu_device_ir(read_text(source), kernels=kernels, library=defined, fibers_only=fibers)


def _defined(libraries: Sequence[Path]) -> frozenset[str]:
    """Return the functions that bitcode libraries define."""
    if not libraries:
        return frozenset()
    from mlir_offload.offload.device_library import defined_functions

    return frozenset(name for path in libraries for name in defined_functions(path))


def unsplit(output: Path) -> Path:
    """Return where cpu-ir writes a module that is yet to be split."""
    return output.with_suffix(".unsplit.ll")
