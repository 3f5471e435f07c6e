"""Installed ROCm device libraries (ocml.bc, ockl.bc, oclc_*.bc)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.tables import load_table
from mlir_offload.toolchain.version import ToolVersion, parse_version
from mlir_offload.toolchain.wish import Wish

_ABI = re.compile(r"oclc_abi_version_(\d+)\.bc")


@dataclass(frozen=True, slots=True)
class RocmTable:
    """Where the device libraries are installed and what belongs to them."""

    places: tuple[str, ...]
    directories: tuple[str, ...]
    libraries: tuple[str, ...]
    package: str


@dataclass(frozen=True, slots=True)
class RocmDeviceLibs:
    """The device libraries in one folder.

    `abi_versions` are the code object versions that there is an oclc_abi_version file for, times
    100 as in its name. `version` is that of ROCm, None where the installation does not say.
    """

    root: Path
    bitcode: Path
    abi_versions: tuple[int, ...]
    version: ToolVersion | None
    source: str


@cache
def load_rocm_table() -> RocmTable:
    """Return the table that ships with the package."""
    return parse_rocm_table(load_table("mlir_offload.toolchain", "rocm"))


def parse_rocm_table(table: Mapping[str, Any]) -> RocmTable:
    """Return the checked table. Raises ValueError naming what is wrong."""
    for key in ("places", "directories", "libraries"):
        if not isinstance(table.get(key), list) or not table[key]:
            msg = f"rocm: {key} must be a list that is not empty"
            raise ValueError(msg)
    return RocmTable(
        tuple(table["places"]),
        tuple(table["directories"]),
        tuple(table["libraries"]),
        str(table["package"]),
    )


def inspect_rocm(root: Path, *, source: str = "") -> RocmDeviceLibs | None:
    """Return the device libraries below the root, or None where they are not all there."""
    table = load_rocm_table()
    for pattern in table.directories:
        for bitcode in sorted(root.glob(pattern), reverse=True):
            if all((bitcode / name).is_file() for name in table.libraries):
                return RocmDeviceLibs(
                    root, bitcode, _abi_versions(bitcode), _read_version(root), source
                )
    return None


def _abi_versions(bitcode: Path) -> tuple[int, ...]:
    matches = [_ABI.fullmatch(path.name) for path in bitcode.iterdir()]
    return tuple(sorted(int(match.group(1)) for match in matches if match))


def _read_version(root: Path) -> ToolVersion | None:
    """Read ROCm's own record of its version."""
    try:
        return parse_version(
            (root / ".info" / "version").read_text(encoding="utf-8", errors="replace")
        )
    except OSError:
        return None


def choose_rocm(found: Sequence[RocmDeviceLibs], wish: Wish | None) -> RocmDeviceLibs:
    """Return the first that was found. Raises ToolchainError where there is none."""
    if found:
        return found[0]
    where = (
        f"{wish.source}: no ROCm device libraries there"
        if wish
        else "no ROCm device libraries found"
    )
    hint = f"apt install {load_rocm_table().package}, or name a ROCm folder with --rocm-path="
    raise ToolchainError(where, hint=hint)
