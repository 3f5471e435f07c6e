"""Check intrinsics and functions of the OpenMP runtime that another release lacks or changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.skew.fact import Consumer, Skew
from mlir_offload.toolchain.skew.limits import LaunchRow, ParameterRow, load_limits
from mlir_offload.toolchain.skew.signature import load_signatures, split_signature
from mlir_offload.toolchain.tables import load_table

_MINIMUM = ("llvm.minimum.", "llvm.maximum.")
_PREFIX = "llvm."


def lost_values(
    lost: Sequence[LaunchRow], given: Collection[str], consumer: Consumer
) -> dict[str, object]:
    """Return the placeholder values for the message about lost launch bounds."""
    names = [row.attribute if row.attribute in given else row.annotation for row in lost]
    needed = max(row.since if row.attribute in given else row.annotation_since for row in lost)
    return {"names": ", ".join(names), "consumer": consumer.llvm, "needed": needed}


def annotation_values(row: ParameterRow, consumer: Consumer) -> dict[str, object]:
    """Return the placeholder values for the message about an annotation that crashes a back end."""
    construct = f"the annotation {row.annotation}"
    return {"construct": construct, "needed": row.annotation_since, "consumer": consumer.llvm}


def check_openmp(name: str, parameters: int, consumer: Consumer) -> Skew | None:
    """Check a declared function of OpenMP's device runtime; return None if the consumer has it unchanged."""
    table = load_limits()
    steps = table.openmp_parameters.get(name)
    expected = steps.at(consumer.llvm) if steps else 0
    is_new = table.openmp_first.get(name, 0) > consumer.llvm
    if is_new or (expected and expected != parameters):
        return Skew("OF005", {"name": name, "consumer": consumer.llvm}, name)
    return None


def check_openmp_structure(name: str, members: int, consumer: Consumer) -> Skew | None:
    """Check a structure that host code passes to libomptarget; return None if the consumer has the same members."""
    steps = load_limits().openmp_structures.get(name.removeprefix("struct."))
    if steps is None or steps.at(consumer.llvm) == members:
        return None
    return Skew("OF005", {"name": name, "consumer": consumer.llvm})


def check_intrinsic(name: str, signature: str, consumer: Consumer, triple: str = "") -> Skew | None:
    """Check a declared intrinsic; return None if the consumer reads it.

    `signature` is its type in LLVM's syntax, an empty string if it is unknown.
    """
    values: dict[str, object] = {"name": name, "consumer": consumer.llvm}
    if name.startswith(_MINIMUM):
        since = load_limits().back_end_since(triple, "minimum")
        if consumer.llvm < since:
            return Skew("BC025", values | {"construct": name, "needed": since})
    intrinsics = load_intrinsics()
    first = intrinsics.first_release(name)
    if first is not None and first > consumer.llvm:
        taken = intrinsics.taken_for(name, consumer.llvm)
        if not taken:
            return Skew("BC014", values | {"needed": first})
        if not name.startswith(load_limits().taken_rightly):
            return Skew("BC028", values | {"needed": first, "taken": taken})
    return _check_signature(name, signature, consumer)


def _check_signature(name: str, signature: str, consumer: Consumer) -> Skew | None:
    table = load_signatures()
    base = table.base_name(name)
    values: dict[str, object] = {"name": name, "consumer": consumer.llvm}
    gone = table.gone.get(base, consumer.llvm + 1)
    if gone <= consumer.llvm:
        return Skew("BC031", values | {"gone": gone})
    if not base or not signature:
        return None
    if table.is_unknown(base, signature, consumer.llvm):
        return Skew("BC032", values | {"type": signature})
    expected = table.expected(base, consumer.llvm)
    if expected is None or table.is_read(base, signature, consumer.llvm, name):
        return None
    if expected.fits(*split_signature(signature)):
        # The type is right, but the name has a suffix although the intrinsic is no longer overloaded.
        return Skew("BC031", values | {"gone": expected.since})
    return Skew("BC023", values | {"type": signature, "expected": str(expected)})


class IntrinsicTable(Struct, frozen=True):
    """For each intrinsic the first release, and the first release in which it takes a type suffix.

    Names in the oldest release of the table are omitted, unless they begin with a newer name. `taken`
    maps a name to the intrinsic that a reader without this name uses instead.
    """

    first: Mapping[str, int]
    overloaded: Mapping[str, int]
    taken: Mapping[str, str]

    def taken_for(self, name: str, release: int) -> str:
        """Return the intrinsic that a release without this name uses instead; "" if it calls a function."""
        end = len(name)
        while end > len(_PREFIX):
            other = self.taken.get(name[:end])
            if other is not None:
                return other if (self.first_release(other) or 0) <= release else ""
            end = name.rfind(".", 0, end)
        return ""

    def first_release(self, name: str) -> int | None:
        """Return the first release with an intrinsic; None if LLVM 14 has it or if it is unknown.

        Like LLVM (Intrinsic::lookupIntrinsicID), this uses the longest known name that ends at a dot.
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
    """Parse and check the table. Raises ValueError with the reason if it is invalid."""
    first, overloaded = _releases(table["first"]), _releases(table["overloaded"])
    return IntrinsicTable(first, overloaded, dict(table["taken"]))


def _releases(rows: Mapping[Any, Any]) -> dict[str, int]:
    """Return the release of each name. Raises ValueError for a duplicate name."""
    found: dict[str, int] = {}
    for release, text in rows.items():
        for name in str(text).split():
            if not name.startswith(_PREFIX) or name in found:
                wrong = "is listed twice" if name in found else f"does not begin with {_PREFIX}"
                msg = f"intrinsics: {name} {wrong}"
                raise ValueError(msg)
            found[name] = int(release)
    return found
