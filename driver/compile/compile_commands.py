"""Entries of compile_commands.json, from which editors and analysers read how a file is compiled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.option.command_line import CompileOptions, Mode, as_operand
from mlir_offload.driver.option.table import COMPILER

_PROGRAM = "mlir-offload"
# Options that do not affect the compilation of one file; outputs, -M options and link options follow the table.
_LEFT_OUT = frozenset(("-shared", "-j", "-v", "-###", "-ftime-report"))


class CompileEntry(Struct, frozen=True):
    """One compilation: the source, its output, and the command that compiles only that source."""

    file: str
    output: str
    arguments: tuple[str, ...]


def mlir_entry(options: CompileOptions, source: Path, output: Path) -> CompileEntry:
    """Return the entry of a `.mlir` file, with the mlir-offload command that compiles its object."""
    spelled = [key + value for key, value in options.spelled if _is_of_compilation(key)]
    if options.mode is Mode.LINK:
        spelled.append("-c")
    program = shutil.which(_PROGRAM) or _PROGRAM
    return CompileEntry(
        str(source), str(output), (program, *spelled, as_operand(str(source)), "-o", str(output))
    )


def _is_of_compilation(name: str) -> bool:
    found = COMPILER.find(name)
    if found is None:
        return True
    row = found[0]
    is_elsewhere = row.path == "output" or row.inputs == "link" or name.startswith("-M")
    return not is_elsewhere and _LEFT_OUT.isdisjoint(row.names)


def render_entries(entries: Sequence[CompileEntry], directory: Path) -> str:
    """Return the entries in the format of clang's `-MJ`: one per line, each followed by a comma."""
    return "".join(
        json.dumps(
            {
                "directory": str(directory),
                "file": entry.file,
                "output": entry.output,
                "arguments": entry.arguments,
            }
        )
        + ",\n"
        for entry in entries
    )
