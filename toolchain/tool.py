"""Programs on disk: whether one can be started, which release it says it is, and which one was requested."""

from __future__ import annotations

import os
import re
from functools import total_ordering
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.errors import ToolchainError, ToolFailedError
from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.process import Command, Runner, describe_status

_RELEASE = pattern(r"\d+(\.\d+){0,2}")
_NUMBER = pattern(r"(\d+)\.(\d+)(?:\.(\d+))?")


@total_ordering
class ToolVersion(Struct, frozen=True, eq=False):
    """A release number, and the text that it was read from, which takes no part in comparisons."""

    major: int
    minor: int
    patch: int = 0
    text: str = ""

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Return the parts of the number."""
        return self.major, self.minor, self.patch

    def __eq__(self, other: object) -> bool:
        """Compare the numbers."""
        return isinstance(other, ToolVersion) and self.numbers == other.numbers

    def __lt__(self, other: ToolVersion) -> bool:
        """Compare the numbers."""
        return self.numbers < other.numbers

    def __hash__(self) -> int:
        """Hash the number."""
        return hash(self.numbers)

    def __str__(self) -> str:
        """Return the dotted number."""
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> ToolVersion | None:
    """Return the first dotted number in `text`, or None where there is none."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    major, minor, patch = match.groups()
    return ToolVersion(int(major), int(minor), int(patch or 0), text.strip())


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


class ToolchainRequest(Struct, frozen=True):
    """A value and where it was given: `--llvm=22`, `CUDA_PATH=/opt/cuda`."""

    value: str
    source: str

    @property
    def is_release(self) -> bool:
        """Say whether the value is a release number and no path."""
        return _RELEASE.fullmatch(self.value) is not None

    @property
    def path(self) -> Path:
        """Return the value as a path."""
        return Path(self.value).expanduser()

    @property
    def major(self) -> int | None:
        """Return the major release asked for, None where a path was given."""
        return int(self.value.split(".")[0]) if self.is_release else None

    def is_satisfied_by(self, version: ToolVersion) -> bool:
        """Say whether the version is the release asked for; every version satisfies a path."""
        if not self.is_release:
            return True
        wanted = [int(part) for part in self.value.split(".")]
        return [version.major, version.minor, version.patch][: len(wanted)] == wanted


def first_request(*given: tuple[str, str]) -> ToolchainRequest | None:
    """Return the first (name, value) whose value is not empty, as a request named `name=value`."""
    for name, value in given:
        if value:
            return ToolchainRequest(value, f"{name}={value}")
    return None
