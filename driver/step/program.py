"""Steps on a whole program: its split, and the header of its functions."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.message.report import show_warning
from mlir_offload.driver.step.group import (
    PATH,
    output_option,
    rdc_option,
    read_text,
    release_option,
    source_argument,
    step,
    write_text,
)
from mlir_offload.driver.step.split_file import write_split
from mlir_offload.toolchain.target import parse_offload_arch
from mlir_offload.translate.device_form import parse_form
from mlir_offload.translate.fixup.fast_math import with_fast_math
from mlir_offload.translate.fixup.split import split_program
from mlir_offload.translate.kernel_parameter import PARAMETER_FORMS, ParameterForm


@step.command("split")
@source_argument
@click.option("--from", "program", type=PATH, required=True, help="the file that the user wrote")
@click.option("--unit-id", required=True)
@click.option("--prefix-map", "maps", multiple=True, metavar="OLD=NEW")
@click.option(
    "--form",
    "forms",
    multiple=True,
    default=("nvvm32",),
    help="of a device module: nvvm32, rocdl64, ...",
)
@click.option("--fast-math", is_flag=True, help="let floating-point operations be inexact")
@click.option("--describe-memory", is_flag=True, help="for launches on the host's own memory")
@click.option("--arch", "archs", multiple=True, help="a target, whose limits are checked")
@click.option("--program", "is_program", is_flag=True, help="main is what starts a program")
@click.option("--transformed", is_flag=True, help="a pass has run the transform scripts")
@click.option("--parameters", type=click.Choice(PARAMETER_FORMS), default="whole")
@click.option("--index-bits", type=int, default=64, help="of index in device code")
@rdc_option
@release_option
@output_option
def _split(  # noqa: PLR0913 (one parameter for each option)
    source: Path,
    program: Path,
    unit_id: str,
    maps: tuple[str, ...],
    forms: tuple[str, ...],
    archs: tuple[str, ...],
    *,
    fast_math: bool,
    describe_memory: bool,
    is_program: bool,
    transformed: bool,
    parameters: ParameterForm,
    index_bits: int,
    rdc: bool,
    major: int,
    output: Path,
) -> None:
    """Split a normalised program into its host module and its device modules."""
    written = _bytes_as_text(program)
    text = read_text(source)
    if maps:
        from mlir_offload.translate.prefix_map import map_locations, parse_prefix_map

        text = map_locations(text, [parse_prefix_map(item, "--prefix-map") for item in maps])
    text = with_fast_math(text) if fast_math else text
    split = split_program(
        text,
        source_text=written,
        unit_id=unit_id,
        llvm_major=major,
        forms=[parse_form(name) for name in forms],
        keeps_functions=rdc,
        describes_memory=describe_memory,
        is_program=is_program,
        is_transformed=transformed,
        targets=[parse_offload_arch(name) for name in archs],
        parameters=parameters,
        index_bits=index_bits,
    )
    for warning in split.warnings:
        show_warning(warning.message, warning.location)
    write_split(split, output)


@step.command("header")
@click.argument("sources", type=PATH, nargs=-1, required=True)
@click.option("--from", "programs", type=PATH, multiple=True, help="what the user wrote, for each")
@output_option
def _header(sources: tuple[Path, ...], programs: tuple[Path, ...], output: Path) -> None:
    """Write the C header of the functions with llvm.emit_c_interface of normalised programs."""
    from mlir_offload.translate.host.interface import render_header_of

    texts = [
        (read_text(source), _bytes_as_text(program))
        for source, program in zip(sources, programs, strict=True)
    ]
    write_text(output, render_header_of(texts, output.name, location=str(programs[0])))


def _bytes_as_text(path: Path) -> str:
    """Return a program as its author wrote it: bytecode is no text, each byte stands for itself."""
    return path.read_bytes().decode("latin-1")
