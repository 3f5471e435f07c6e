"""NVIDIA drivers: the CUDA release that each driver branch supports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.tables import load_table

_VERSION = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.\d{1,4})*")
_Pair = tuple[int, int]


class DriverTable(Struct, frozen=True):
    """Pairs of the first driver version of a branch and its CUDA release, ascending."""

    branches: tuple[tuple[_Pair, _Pair], ...]

    def cuda_of(self, driver: str) -> _Pair | None:
        """Return the CUDA release of a driver, None if the driver is older than the table.

        Raises UsageError if the text is not a driver version.
        """
        version = _parsed(driver)
        if version is None:
            msg = f"'{driver}' is not a version of a driver"
            raise UsageError(msg, hint="write it as nvidia-smi prints it: 570.86.15")
        known = [cuda for first, cuda in self.branches if first <= version]
        return known[-1] if known else None

    def is_newest(self, cuda: _Pair) -> bool:
        """Return whether the table has no newer CUDA release; newer drivers may support a later one."""
        return cuda == self.branches[-1][1]

    def oldest_for(self, major: int) -> str:
        """Return the oldest driver branch that supports a CUDA major release."""
        found = (first for first, cuda in self.branches if cuda[0] >= major)
        return str(next(found, self.branches[-1][0])[0])


@cache
def load_drivers() -> DriverTable:
    """Return the table that ships with the package."""
    return parse_drivers(load_table("mlir_offload.toolchain", "cuda_driver"))


def parse_drivers(table: Mapping[str, Any]) -> DriverTable:
    """Parse and check the table. Raises ValueError with the reason if it is invalid."""
    rows = [(_parsed(str(row["driver"])), _parsed(str(row["cuda"]))) for row in table["branches"]]
    branches = tuple((driver, cuda) for driver, cuda in rows if driver and cuda)
    drivers, releases = [row[0] for row in branches], [row[1] for row in branches]
    if not rows or len(branches) != len(rows):
        msg = "cuda_driver: each branch needs a driver and a release of CUDA"
        raise ValueError(msg)
    if drivers != sorted(set(drivers)) or releases != sorted(set(releases)):
        msg = "cuda_driver: the branches do not ascend"
        raise ValueError(msg)
    return DriverTable(branches)


def _parsed(text: str) -> _Pair | None:
    found = _VERSION.fullmatch(text)
    # A branch without a minor version (570) represents its newest driver.
    return (int(found[1]), int(found[2] or 9999)) if found else None
