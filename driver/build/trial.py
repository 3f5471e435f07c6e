"""A build whose result only the driver itself looks at, in this process."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.driver.build.subcommand import build_with
from mlir_offload.driver.compile.context import open_build
from mlir_offload.driver.option.command_line import parse_arguments
from mlir_offload.driver.system.parallel import JobSlots
from mlir_offload.toolchain.process import Runner


def build_trial(arguments: Sequence[str], runner: Runner) -> None:
    """Do what a command line asks for, without the user's configuration. Raises MlirOffloadError."""
    with open_build(parse_arguments(arguments), runner, slots=JobSlots(1)) as opened:
        build_with(opened)
