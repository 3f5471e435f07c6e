"""Show what is installed, what it is used for, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlir_offload.driver.option.click_command import command
from mlir_offload.driver.tools.choose import places_for
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.inventory import Inventory, InventoryRow, inventory_rows, take_inventory
from mlir_offload.toolchain.process import Runner

# A pipe has no width; this keeps paths on one line for grep.
_PIPE_WIDTH = 160


@command("toolchains")
@click.pass_obj
def toolchains(runner: Runner, llvm: str, cuda_path: str, rocm_path: str) -> int:
    """Show the LLVM, CUDA and ROCm installations, and what to install if parts are missing.

    Exit status 0 if programs can be compiled and linked, 3 if not.
    """
    inventory = take_inventory(runner, places_for(llvm, cuda_path, rocm_path))
    rows = inventory_rows(inventory)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    console.print(_table(rows))
    for line in _missing_lines(rows):
        console.print(line, markup=False, soft_wrap=True)
    console.print(_summary(inventory), markup=False, soft_wrap=True)
    return 0 if inventory.default_llvm else ToolchainError.exit_status


def _table(rows: Iterable[InventoryRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "part", "version", "where", "found by", "used for"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(
            "*" if row.is_default else "",
            str(row.part),
            row.version or "-",
            str(row.location or "not found"),
            row.source,
            Text(row.problem, style="red")
            if row.problem
            else ", ".join(row.roles) or "nothing as it is",
        )
    return table


def _missing_lines(rows: Iterable[InventoryRow]) -> Iterable[str]:
    for row in rows:
        name = f"{row.part} {row.version}".strip()
        for missing in row.missing:
            reason = f" ({missing.reason})" if missing.reason else ""
            optional = ", optional" if missing.is_optional else ""
            yield f"{name}: no {missing.name}{reason}, for: {missing.role}{optional}  ->  {missing.hint}"


def _summary(inventory: Inventory) -> str:
    if inventory.default_llvm is None:
        return "No LLVM release here can both lower and link: install the packages named above."
    target = f"the GPU ({', '.join(inventory.gpus)})" if inventory.gpus else "the CPU"
    return f"* = used by default. Programs compile with LLVM {inventory.default_llvm.version} for {target}."
