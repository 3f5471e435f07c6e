"""The output of --help."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from mlir_offload.driver.option.row import Subcommand
from mlir_offload.driver.option.subcommand import SUBCOMMANDS

_COLUMN = 26
_WIDTH = 80


def render_help(subcommand: Subcommand) -> str:
    """Return the help of a subcommand, for a terminal of 80 columns."""
    command = f"mlir-offload {subcommand.name}".rstrip()
    starts = ("usage:", *[""] * len(subcommand.usage))
    usage = [
        f"{start:6} {command} {line}" for start, line in zip(starts, subcommand.usage, strict=False)
    ]
    wrapped = (textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 9) for line in usage)
    lines = [part for lines in wrapped for part in lines]
    lines += ("", *textwrap.wrap(subcommand.summary, _WIDTH))
    if not subcommand.name:
        lines += ("", "subcommands, each with --help:")
        lines += (line for one in SUBCOMMANDS.values() for line in _lines(one.name, one.line))
    for group in subcommand.groups:
        lines += ("", f"{group.title}:")
        lines += (line for row in group.rows for line in _lines(row.label, row.help))
    return "\n".join(lines) + "\n"


def _lines(label: str, text: str) -> Iterator[str]:
    """Yield a label and its text in two columns; a long label has a separate line."""
    first, *others = textwrap.wrap(text, _WIDTH - _COLUMN)
    head = f"  {label}"
    if len(head) < _COLUMN:
        yield f"{head:{_COLUMN}}{first}"
    else:
        yield head
        others = [first, *others]
    yield from (f"{'':{_COLUMN}}{line}" for line in others)
