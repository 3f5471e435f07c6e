"""Offload entries that stand in LLVM IR, text or bitcode: their members by the layout of a release."""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.offload.abi import EntryLayout, entry_layouts, kind_names
from mlir_offload.offload.host.object_entry import HostEntry

_COFF_SUFFIX = "$"


def elf_name_of(section: str) -> str:
    """Return the name of a section without what COFF adds to sort it."""
    return section.partition(_COFF_SUFFIX)[0]


def layout_of(section: str, members: int) -> EntryLayout | None:
    """Return the layout of that many members whose entries lie in the section; None for no layout."""
    found = (
        layout
        for layout in entry_layouts()
        if len(layout.fields) == members and section in dict(layout.sections).values()
    )
    return next(found, None)


def entry_of(
    layout: EntryLayout, section: str, members: Iterable[tuple[str, int, str]]
) -> HostEntry:
    """Return the entry whose members are given by name, number, and the string they point to."""
    numbers: dict[str, int] = {}
    name = ""
    for member, number, string in members:
        numbers[member] = number
        name = string if member == "name" else name
    kind = dict(kind_names()).get(numbers.get("kind", 0), "")
    own = (kind for kind, base in layout.sections if base == section)
    return HostEntry(
        kind=kind or next(own, ""),
        name=name,
        size_bytes=numbers["size"],
        flags=numbers["flags"],
        data=numbers["data"],
        section=section,
        fields=len(layout.fields),
    )
