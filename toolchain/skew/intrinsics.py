"""Since when LLVM knows an intrinsic: what an older release does not know it calls as a function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from mlir_offload.toolchain.tables import load_table

_PREFIX = "llvm."
_ALONE = "$"
# How a type is written in the name of an overload (Intrinsic::getName).
_TYPES = re.compile(r"(?:\.(?:nx)?(?:v\d+)?(?:[fi]\d+|bf16|p\d+|s_\w+|sl_\w+|a\d+\w+))+")


@dataclass(frozen=True, slots=True)
class IntrinsicTable:
    """The releases by name.

    `alone` are the names that stand for their overloads only, not for all below them. `overloaded`
    are the releases since which a name ends with a type.
    """

    first: Mapping[str, int]
    alone: frozenset[str]
    overloaded: Mapping[str, int]

    def first_release(self, name: str) -> int | None:
        """Return the release that first knows an intrinsic; None for those of LLVM 14, and for others."""
        end = len(name)
        while end > len(_PREFIX):
            prefix, rest = name[:end], name[end:]
            is_overload = _TYPES.fullmatch(rest) is not None
            if is_overload and prefix in self.overloaded:
                return self.overloaded[prefix]
            if prefix in self.first and (not rest or is_overload or prefix not in self.alone):
                return self.first[prefix]
            end = name.rfind(".", 0, end)
        return None


@cache
def load_intrinsics() -> IntrinsicTable:
    """Return the table that ships with the package."""
    return parse_intrinsics(load_table("mlir_offload.toolchain", "intrinsics"))


def parse_intrinsics(table: Mapping[str, Any]) -> IntrinsicTable:
    """Return the checked table. Raises ValueError naming what is wrong."""
    marked = _releases(table["first"])
    first = {name.removesuffix(_ALONE): release for name, release in marked.items()}
    if len(first) != len(marked):
        msg = "intrinsics: a name is listed with and without its mark"
        raise ValueError(msg)
    alone = frozenset(name.removesuffix(_ALONE) for name in marked if name.endswith(_ALONE))
    return IntrinsicTable(first, alone, _releases(table["overloaded"]))


def _releases(rows: Mapping[Any, Any]) -> dict[str, int]:
    """Return the release of each name of a list. Raises ValueError for one that stands there twice."""
    found: dict[str, int] = {}
    for release, text in rows.items():
        for name in str(text).split():
            if not name.startswith(_PREFIX) or name in found:
                wrong = "is listed twice" if name in found else f"does not begin with {_PREFIX}"
                msg = f"intrinsics: {name} {wrong}"
                raise ValueError(msg)
            found[name] = int(release)
    return found
