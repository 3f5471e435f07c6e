"""The first step of each `.mlir` file, started before the rest of the compiler is even loaded."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mlir_offload.driver.context import BuildContext
from mlir_offload.translate.diagnostics import check_source, condense
from mlir_offload.translate.lower import normalize_command

_NVGPU = b"nvgpu"


def normalized(directory: Path) -> Path:
    """Return where the program in its one fixed layout is written."""
    return directory / "normal.mlir"


def normalize(context: BuildContext, source: Path, directory: Path) -> None:
    """Bring a program of any form to one fixed layout, its kernels outlined.

    Raises SourceError for what is wrong in the program, with its place in `source`.
    """
    uses_nvgpu = _NVGPU in check_source(source)
    context.executor.make_directory(directory)
    output = normalized(directory)
    context.executor.tool(
        normalize_command(context.mlir, source, output, uses_nvgpu=uses_nvgpu),
        output,
        decides=True,
        diagnose=partial(condense, source=source),
    )
