"""What the user asked for by an option or an environment variable."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.version import ToolVersion

_RELEASE = pattern(r"\d+(\.\d+){0,2}")


class Wish(Struct, frozen=True):
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

    def admits(self, version: ToolVersion) -> bool:
        """Say whether the version is the release asked for; a path admits any."""
        if not self.is_release:
            return True
        wanted = [int(part) for part in self.value.split(".")]
        return [version.major, version.minor, version.patch][: len(wanted)] == wanted


def first_wish(*given: tuple[str, str]) -> Wish | None:
    """Return the first (name, value) whose value is not empty, as a wish named `name=value`."""
    for name, value in given:
        if value:
            return Wish(value, f"{name}={value}")
    return None
