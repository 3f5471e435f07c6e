"""Offload entries: what a host module says about its kernels to the runtimes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir_offload.offload.host_module import escape_bytes, global_name
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.offload.abi import EntryLayout, OffloadAbi

_ENTRY_VERSION = 1


@dataclass(frozen=True, slots=True)
class OffloadEntry:
    """A kernel of one kind: its device symbol, and the host symbol whose address stands for it."""

    kind: Kind
    name: str
    address: str


def entry_symbol(entry: OffloadEntry, layout: EntryLayout) -> str:
    """Return the symbol of an entry; a kernel has one for each kind."""
    suffix = "" if entry.kind is Kind.CUDA else f".{entry.kind.value}"
    return f"{layout.symbol_prefix}{entry.name}{suffix}"


def render_entry(entry: OffloadEntry, index: int, abi: OffloadAbi) -> str:
    """Return the IR of an entry and of its name string; `index` keeps the strings apart."""
    layout = abi.entry
    name_symbol = f"{layout.name_symbol}.{index}" if index else layout.name_symbol
    values = {
        "version": str(_ENTRY_VERSION),
        "kind": str(abi.kind_code(entry.kind)),
        "address": global_name(entry.address),
        "name": global_name(name_symbol),
        "auxiliary": "null",
    }
    types = ", ".join(field.type for field in layout.fields)
    members = ", ".join(f"{field.type} {values.get(field.name, '0')}" for field in layout.fields)
    text = entry.name.encode() + b"\0"
    section = f', section "{layout.name_section}", align 1' if layout.name_section else ""
    return (
        f"{global_name(name_symbol)} = internal unnamed_addr constant [{len(text)} x i8] "
        f'c"{escape_bytes(text)}"{section}\n'
        f"{global_name(entry_symbol(entry, layout))} = internal constant {{ {types} }} "
        f'{{ {members} }}, section "{layout.section(entry.kind)}", align {layout.align}\n'
    )
