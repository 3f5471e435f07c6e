"""Programs on disk: whether one can be started and which release it says it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import ToolchainError, ToolFailedError
from mlir_offload.toolchain.process import Command, Runner, describe_status
from mlir_offload.toolchain.version import ToolVersion, parse_version

# What takes so long to say who it is hangs, on however busy a machine.
PROBE_LIMIT_S = 60.0


class ProbedVersion(Struct, frozen=True):
    """What a program answered to `--version`: a version, or None with the reason."""

    version: ToolVersion | None
    reason: str = ""


def is_program(path: Path) -> bool:
    """Say whether the path is a file that this user may start."""
    # Path.is_file would raise in a folder that this user may not enter.
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def probe_version(runner: Runner, program: Path, pattern: re.Pattern[str]) -> ProbedVersion:
    """Ask the program for its version; never raises for what the program does.

    The first line that `pattern` matches holds the version, from where the match ends.
    """
    try:
        completed = runner.run(Command((str(program), "--version"), limit_s=PROBE_LIMIT_S))
    except (ToolchainError, ToolFailedError) as error:
        return ProbedVersion(None, error.message)
    if completed.returncode != 0:
        status = describe_status(completed.returncode)
        return ProbedVersion(None, f"'{program} --version' ended with {status}")
    for line in completed.stdout.splitlines():
        match = pattern.search(line)
        version = parse_version(line[match.end() :]) if match else None
        if version is not None:
            return ProbedVersion(
                ToolVersion(version.major, version.minor, version.patch, line.strip())
            )
    return ProbedVersion(None, f"'{program} --version' printed no version")
