"""Steps on device code for the CPU that run in process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from mlir_offload.driver.step.group import (
    PATH,
    kernels_option,
    located,
    output_option,
    rdc_option,
    read_text,
    sanitize_option,
    source_argument,
    step,
    write_text,
)
from mlir_offload.translate.cpu.module import CpuDeviceSource, cpu_device_ir, finish_cpu_ir

_libraries = click.option(
    "--device-lib", "libraries", type=PATH, multiple=True, help="bitcode that kernels may call"
)
_location = click.option("--location", default="", help="the file that errors name")


@step.command("cpu-ir")
@source_argument
@kernels_option
@_libraries
@rdc_option
@_location
@sanitize_option
@click.option("--fibers", is_flag=True, help="a stack for each work-item, so that nothing is to do")
@click.option("--collapse", is_flag=True, help="prepare kernels for the collapse over subgroups")
@click.option("--variables", type=PATH, help="the module in MLIR: name values as it does, for gdb")
@output_option
def _cpu_ir(  # noqa: PLR0913 (one parameter for each option)
    source: Path,
    kernels: tuple[str, ...],
    libraries: tuple[Path, ...],
    location: str,
    sanitize: str,
    *,
    rdc: bool,
    fibers: bool,
    collapse: bool,
    variables: Path | None,
    output: Path,
) -> None:
    """Rewrite the LLVM IR of a device module for the CPU.

    A module whose kernels have barriers is not whole yet: it is written to OUTPUT.unsplit.ll, for
    opt and cpu-split.
    """
    with located(location):
        made = _cpu_source(
            _with_variables(read_text(source), variables, Path(location)),
            kernels,
            libraries,
            sanitize,
            rdc=rdc,
            fibers=fibers or variables is not None,
            collapse=collapse,
        )
    text = made.text
    if variables is not None:
        from mlir_offload.translate.cpu.variables import steppable

        text = steppable(text)
    if not made.needs_prepare:
        # Of an earlier program in a directory that -save-temps names.
        unsplit(output).unlink(missing_ok=True)
    write_text(unsplit(output) if made.needs_prepare else output, text)


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
@rdc_option
@_location
@sanitize_option
@output_option
def _cpu_split(  # noqa: PLR0913 (one parameter for each option)
    source: Path,
    device: Path,
    kernels: tuple[str, ...],
    libraries: tuple[Path, ...],
    location: str,
    sanitize: str,
    *,
    rdc: bool,
    output: Path,
) -> None:
    """Split kernels at their barriers, in what opt made of the output of cpu-ir."""
    with located(location):
        first = _cpu_source(read_text(device), kernels, libraries, sanitize, rdc=rdc)
        write_text(output, finish_cpu_ir(read_text(source), first).text)


def _with_variables(text: str, module: Path | None, source: Path) -> str:
    """Name the values of the kernels; the text as it is where the source cannot be read."""
    if module is None or not source.is_file():
        return text
    from mlir_offload.translate.cpu.variables import with_variables

    return with_variables(text, read_text(module), read_text(source), source.name)


def _cpu_source(  # noqa: PLR0913 (one parameter for each option)
    text: str,
    kernels: Sequence[str],
    libraries: Sequence[Path],
    sanitize: str,
    *,
    rdc: bool,
    fibers: bool = False,
    collapse: bool = False,
) -> CpuDeviceSource:

    attributes: tuple[str, ...] = ()
    if sanitize:
        from mlir_offload.translate.sanitizer import parse_sanitizer

        sanitizer = parse_sanitizer(sanitize)
        attributes, fibers = (sanitizer.attribute,), fibers or sanitizer.finds_races
    return cpu_device_ir(
        text,
        kernels=kernels,
        library=_defined(libraries),
        keeps_functions=rdc,
        attributes=attributes,
        fibers_only=fibers,
        for_collapse=collapse,
    )


def _defined(libraries: Sequence[Path]) -> frozenset[str]:
    """Return the functions that bitcode libraries define."""
    if not libraries:
        return frozenset()
    from mlir_offload.offload.device.library import defined_functions

    return frozenset(name for path in libraries for name in defined_functions(path))


def unsplit(output: Path) -> Path:
    """Return where cpu-ir writes a module that is yet to be split."""
    return output.with_suffix(".unsplit.ll")
