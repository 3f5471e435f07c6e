"""The rows for an LLVM release that were not measured with its own tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlir_offload.offload.abi import load_abi, offload_table, row_of

# Lists that affect links only, not objects.
_OF_LINKS = frozenset(
    {"linker_wrapper.relocatable_link", "linker_wrapper.override_image", "linker_wrapper.jobs"}
)
_SHOWN = 4
# Lists about several releases together.
_NOT_OF_ONE = frozenset({"any_consumer", "cuda", "majors", "packaged_devices"})


def unmeasured_lists(major: int) -> tuple[str, ...]:
    """Return the lists of the offloading ABI whose row for a release is inferred from other releases."""
    return tuple(
        name
        for name, rows in _lists(offload_table())
        if major not in row_of(rows, major)["checked"]
    )


def unmeasured_note(major: int) -> str:
    """Return the note for compiling for a release that is not installed; empty if all rows are measured.

    Raises CompatibilityError for a release that the tables do not contain.
    """
    load_abi(major)
    lists = tuple(name for name in unmeasured_lists(major) if name not in _OF_LINKS)
    if not lists:
        return ""
    listed = f"{', '.join(lists[:_SHOWN])}{' and more' if len(lists) > _SHOWN else ''}"
    return (
        f"LLVM {major} is not installed here, and of its offloading ABI these parts are inferred from other releases: "
        f"{listed}"
    )


def _lists(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if not prefix and name in _NOT_OF_ONE:
            continue
        if isinstance(value, list):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping):
            yield from _lists(value, f"{prefix}{name}.")
