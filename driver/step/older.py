"""The steps between two releases of LLVM."""

from __future__ import annotations

from pathlib import Path

import click

from mlir_offload.driver.step.group import step
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.translate.downgrade.same_kernels import check_same_kernels
from mlir_offload.translate.downgrade.text import downgrade

_PATH = click.Path(path_type=Path)


@step.command("downgrade")
@click.argument("source", type=_PATH)
@click.option("--reader", type=int, required=True, help="the release of LLVM that reads it")
@click.option("--location", default="", help="the file that errors name")
@click.option("-o", "--output", type=_PATH, required=True)
def _downgrade(source: Path, reader: int, location: str, output: Path) -> None:
    """Write LLVM IR in the form that an older release of LLVM reads."""
    text = source.read_text(encoding="utf-8", errors="surrogateescape")
    made = downgrade(text, reader=reader, location=location)
    output.write_text(made, encoding="utf-8", errors="surrogateescape")


@step.command("same-kernels")
@click.argument("source", type=_PATH)
@click.argument("assembly", type=_PATH)
def _same_kernels(source: Path, assembly: Path) -> None:
    """Check that PTX has the kernels of LLVM IR, launched alike."""
    text = source.read_text(encoding="utf-8", errors="surrogateescape")
    with open_view(assembly) as view:
        check_same_kernels(text, view)
