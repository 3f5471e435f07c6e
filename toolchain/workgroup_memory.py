"""How much workgroup memory the blocks of a GPU may have."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.tables import load_table


class WorkgroupLimit(Struct, frozen=True):
    """The bytes that variables may take, and those that variables and the launch may take together."""

    arch: str
    static_bytes: int
    all_bytes: int


def find_workgroup_limit(arch: str) -> WorkgroupLimit | None:
    """Return the limit of an architecture, None where only the machine that runs the program knows it."""
    name = arch.partition(":")[0]
    bare = name.rstrip("af") if name.startswith("sm_") else name
    for row in _rows():
        # A pattern that is a name costs more to compile than to compare.
        if bare in row["archs"] or any(
            fnmatchcase(bare, one) for one in row["archs"] if "*" in one
        ):
            return WorkgroupLimit(arch, row["static"], row["all"])
    return None


@cache
def _rows() -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = load_table("mlir_offload.toolchain", "workgroup_memory")[
        "limits"
    ]
    return rows
