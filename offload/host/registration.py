"""Register kernels and device globals in a host module, for one release of LLVM or for several."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING

from mlir_offload.offload.host.entry import (
    EntryPlace,
    OffloadEntry,
    check_entry,
    entry_section,
    render_entry,
)
from mlir_offload.offload.host.module import (
    extend_used_list,
    global_name,
    next_metadata_number,
    target_triple,
)
from mlir_offload.offload.kind_format import check_kinds, format_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlir_offload.offload.abi import OffloadAbi


def register_entries(text: str, entries: Sequence[OffloadEntry], abis: Sequence[OffloadAbi]) -> str:
    """Return the host module with the entries, in the form of each ABI.

    Raises SourceError for an entry that would be misread, CompatibilityError for one that a
    release would lose or that the releases together cannot express.
    """
    check_kinds(sorted({entry.kind for entry in entries}), abis)
    for abi in abis:
        for entry in entries:
            check_entry(entry, abi)
        text = append_entries(text, entries, abi)
    return text


def append_entries(text: str, entries: Sequence[OffloadEntry], abi: OffloadAbi) -> str:
    """Return the host module with the entries as clang of the release writes them, unchecked.

    Unlike clang's they are kept from the garbage collection of sections.
    """
    ordered = sorted(entries, key=lambda entry: not format_of(entry.kind).is_registered_first)
    places = _places(ordered, abi, target_triple(text))
    rendered = "".join(map(render_entry, ordered, repeat(abi), places))
    # `llvm.used` sets SHF_GNU_RETAIN: lld --gc-sections would drop the array, or fail on its bounds.
    text = extend_used_list(text + rendered, "llvm.used", [place.symbol for place in places])
    return _append_symbols(text, places) if abi.entry.has_symbols_metadata else text


def _places(entries: Sequence[OffloadEntry], abi: OffloadAbi, triple: str) -> list[EntryPlace]:
    """Return where each entry goes; one name of several kinds gets a symbol for each kind."""
    layout, counts = abi.entry, Counter(entry.name for entry in entries)
    places = []
    for index, entry in enumerate(entries):
        is_shared = counts[entry.name] > 1 and not format_of(entry.kind).has_plain_entries
        places.append(
            EntryPlace(
                f"{layout.symbol_prefix}{entry.name}{f'.{entry.kind}' if is_shared else ''}",
                f"{layout.name_symbol}.{index}" if index else layout.name_symbol,
                entry_section(entry.kind, abi, triple),
            )
        )
    return places


def _append_symbols(text: str, places: Sequence[EntryPlace]) -> str:
    """List the name strings in `llvm.offloading.symbols`, as clang does from LLVM 20 on."""
    number = next_metadata_number(text)
    nodes = "".join(
        f"!{number + index} = !{{ptr {global_name(place.name_symbol)}}}\n"
        for index, place in enumerate(places)
    )
    listed = ", ".join(f"!{number + index}" for index in range(len(places)))
    return f"{text}!llvm.offloading.symbols = !{{{listed}}}\n{nodes}"
