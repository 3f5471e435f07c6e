"""The steps that run in process, each also a command: what `-###` prints can be pasted.

A step reads files and writes files; it knows nothing of the plan that it is part of.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from mlir_offload.driver.step.group import step
from mlir_offload.toolchain.errors import UsageError


def run_step(arguments: Sequence[str]) -> None:
    """Run `mlir-offload step NAME ARGUMENT...`. Raises UsageError for a bad command line."""
    # click takes a short option for a long one at first, and loads what finds names that are like it.
    words = ["--output" if word == "-o" else word for word in arguments]
    try:
        step.main(words, prog_name="mlir-offload step", standalone_mode=False)
    except click.UsageError as error:
        raise UsageError(error.format_message(), hint="see 'mlir-offload step --help'") from error
