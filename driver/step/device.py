"""The step on any lowered device module."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.step.group import (
    output_option,
    rdc_option,
    read_text,
    source_argument,
    step,
    write_text,
)
from mlir_offload.translate.contraction import CONTRACTIONS, Contraction
from mlir_offload.translate.lower import unwrap_device


@step.command("unwrap")
@source_argument
@click.option("--triple", required=True)
@rdc_option
@click.option("--fp-contract", type=click.Choice(CONTRACTIONS), default="on")
@output_option
def _unwrap(
    source: Path, triple: str, *, rdc: bool, fp_contract: Contraction, output: Path
) -> None:
    """Make the lowered device module a module of its own for mlir-translate."""
    text = read_text(source)
    write_text(output, unwrap_device(text, triple, keeps_functions=rdc, contraction=fp_contract))
