"""Learned rows as a table for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from mlir_offload.driver.tools.calibration import as_values, table_values
from mlir_offload.toolchain.learned_row import list_of
from mlir_offload.toolchain.tables import LearnedRelease

# A pipe has no width: wide enough that a data layout stays in one piece.
_PIPE_WIDTH = 240
_EQUAL = "the same"


def show_table(release: LearnedRelease, place: str) -> None:
    """Print each list of rows: what was learned, and what the nearest release has."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(f"LLVM {release.version} in {place}: {release.probes} probes", markup=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("table", f"LLVM {release.version}", f"LLVM {release.nearest}"):
        table.add_column(heading, overflow="fold")
    for row in release.rows:
        own, near = as_values(row), table_values(row, release.nearest)
        for name, value in own.items():
            is_equal = value == near.get(name)
            table.add_row(
                f"{list_of(row)}: {name}",
                _shown(value),
                _EQUAL if is_equal else _shown(near.get(name)),
            )
    console.print(table, markup=False)
    for one in release.assumed:
        console.print(f"assumed as in LLVM {release.nearest}: {one}", markup=False, soft_wrap=True)
    for one in release.refused:
        console.print(f"refused: {one}", markup=False, soft_wrap=True)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(one)}" for key, one in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value in ("", None) else str(value)
