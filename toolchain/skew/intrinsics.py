"""Since when LLVM knows an intrinsic: what an older release does not know it calls as a function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.tables import load_table

_PREFIX = "llvm."


class IntrinsicTable(Struct, frozen=True):
    """The releases by name: since when each is known, and since when it takes a type suffix.

    Names that the oldest release in the table knows are left out, unless they begin with a newer one.
    `taken` are the names that a reader which lacks them takes for another, and for which.
    """

    first: Mapping[str, int]
    overloaded: Mapping[str, int]
    taken: Mapping[str, str]

    def taken_for(self, name: str, release: int) -> str:
        """Return the intrinsic that a release without this one takes it for; empty if it calls a function."""
        end = len(name)
        while end > len(_PREFIX):
            other = self.taken.get(name[:end])
            if other is not None:
                return other if (self.first_release(other) or 0) <= release else ""
            end = name.rfind(".", 0, end)
        return ""

    def first_release(self, name: str) -> int | None:
        """Return the release that first reads an intrinsic; None for those of LLVM 14, and for others.

        As LLVM itself does (Intrinsic::lookupIntrinsicID): the longest name up to a dot counts.
        """
        if name in self.first or name in self.overloaded:
            return self.first.get(name)
        end = name.rfind(".")
        while end > len(_PREFIX):
            if name[:end] in self.overloaded:
                return self.overloaded[name[:end]]
            end = name.rfind(".", 0, end)
        return None


@cache
def load_intrinsics() -> IntrinsicTable:
    """Return the table that ships with the package."""
    return parse_intrinsics(load_table("mlir_offload.toolchain", "intrinsics"))


def parse_intrinsics(table: Mapping[str, Any]) -> IntrinsicTable:
    """Return the checked table. Raises ValueError naming what is wrong."""
    first, overloaded = _releases(table["first"]), _releases(table["overloaded"])
    return IntrinsicTable(first, overloaded, dict(table["taken"]))


def _releases(rows: Mapping[Any, Any]) -> dict[str, int]:
    """Return the release of each name of a list. Raises ValueError for one that is listed twice."""
    found: dict[str, int] = {}
    for release, text in rows.items():
        for name in str(text).split():
            if not name.startswith(_PREFIX) or name in found:
                wrong = "is listed twice" if name in found else f"does not begin with {_PREFIX}"
                msg = f"intrinsics: {name} {wrong}"
                raise ValueError(msg)
            found[name] = int(release)
    return found
