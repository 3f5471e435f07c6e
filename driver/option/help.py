"""What --help and --version show."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from mlir_offload.driver.option.table import OptionRow, Verb, load_verbs

_COLUMN = 26
_WIDTH = 80


def render_help(verb: Verb) -> str:
    """Return what a verb does and takes, for a terminal of 80 columns."""
    command = f"mlir-offload {verb.name}".rstrip()
    starts = ("usage:", *[""] * len(verb.usage))
    usage = [f"{start:6} {command} {line}" for start, line in zip(starts, verb.usage, strict=False)]
    wrapped = (textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 9) for line in usage)
    lines = [*(part for lines in wrapped for part in lines), *textwrap.wrap(verb.summary, _WIDTH)]
    if not verb.name:
        lines += _verb_lines()
    for group in verb.groups:
        lines += (f"{group.title}:", *(line for row in group.rows for line in _row_lines(row)))
    return "\n".join(lines) + "\n"


def _verb_lines() -> Iterator[str]:
    names = ", ".join(name for name in load_verbs() if name)
    yield from textwrap.wrap(f"verbs, each with --help: {names}", _WIDTH, subsequent_indent="  ")


def _row_lines(row: OptionRow) -> Iterator[str]:
    label = f"  {row.label}"
    if len(label) < _COLUMN:
        yield f"{label:{_COLUMN}}{row.help}"
        return
    if len(label) + 2 + len(row.help) <= _WIDTH:
        yield f"{label}  {row.help}"
        return
    yield label
    yield f"{'':{_COLUMN}}{row.help}"
