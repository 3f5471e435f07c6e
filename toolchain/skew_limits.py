"""What the bitcode reader of each LLVM release knows, as the table that ships with the package says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from mlir_offload.toolchain.tables import load_table

_LISTS = (
    "attribute_kinds",
    "attribute_forms",
    "constant_codes",
    "function_codes",
    "type_codes",
    "summaries",
)


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """The highest numbers that the bitcode reader of one release knows."""

    attribute_kinds: int
    attribute_forms: int
    constant_codes: int
    function_codes: int
    type_codes: int
    summaries: int


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """Those of all releases: for each list the releases that brought a higher number, ascending."""

    rows: Mapping[str, tuple[tuple[int, int], ...]]
    attribute_names: Mapping[int, str]

    def of(self, release: int) -> ReaderLimits:
        """Return the limits of a release; those of the oldest that is known for older ones."""
        return ReaderLimits(**{name: _newest(self.rows[name], release) for name in _LISTS})

    def first_release(self, name: str, number: int) -> int | None:
        """Return the release whose reader first knows a number of a list; None for a later one."""
        return next((since for since, newest in self.rows[name] if newest >= number), None)


@cache
def load_limits() -> LimitsTable:
    """Return the table that ships with the package."""
    return parse_limits(load_table("mlir_offload.toolchain", "skew_limits"))


def parse_limits(table: Mapping[str, Any]) -> LimitsTable:
    """Return the checked table. Raises ValueError naming the row that is wrong."""
    rows = {name: _parse_rows(name, table[name]) for name in _LISTS}
    names = {int(number): str(name) for number, name in table["attribute_names"].items()}
    return LimitsTable(rows, names)


def _parse_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int], ...]:
    pairs = tuple((int(row["since"]), int(row["newest"])) for row in rows)
    for place in (0, 1):
        values = [pair[place] for pair in pairs]
        if not values or values != sorted(set(values)):
            msg = f"skew_limits: {name} does not ascend: {values}"
            raise ValueError(msg)
    return pairs


def _newest(rows: Sequence[tuple[int, int]], release: int) -> int:
    known = [newest for since, newest in rows if since <= release]
    return known[-1] if known else rows[0][1]
