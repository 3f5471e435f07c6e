"""The group of the steps, and what all of them use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from mlir_offload.toolchain.errors import MlirOffloadError

PATH = click.Path(path_type=Path)
output_option = click.option("-o", "--output", type=PATH, required=True)
kernels_option = click.option("--kernel", "kernels", multiple=True)
release_option = click.option("--llvm", "major", type=int, required=True)
rdc_option = click.option("--rdc", is_flag=True, help="keep functions that other files may call")
ftz_option = click.option("--ftz", is_flag=True, help="take subnormal numbers for zero")
sanitize_option = click.option(
    "--sanitize", default="", help="the sanitizer that the code is marked for"
)
source_argument = click.argument("source", type=PATH)


@click.group()
def step() -> None:
    """Run one step of a compilation; these are what -### prints."""


@contextlib.contextmanager
def located(location: str) -> Iterator[None]:
    """Give errors raised inside the place of the input where they name none."""
    try:
        yield
    except MlirOffloadError as error:
        error.location = error.location or location
        raise


def read_text(path: Path) -> str:
    """Return the text of a file, bytes that are no UTF-8 kept as they are."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write_text(path: Path, text: str) -> None:
    """Write what `read_text` reads."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
