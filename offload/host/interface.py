"""Embed the interface for C, C++ and Python into a host module."""

from __future__ import annotations

from mlir_offload.offload.interface.function import INTERFACE_GLOBAL, INTERFACE_SECTION
from mlir_offload.offload.ir_syntax import escape_bytes, extend_used_list


def embed_interface(ll_text: str, interface: str) -> str:
    """Return the host module with the interface in its section, which every link keeps."""
    if not interface:
        return ll_text
    encoded = interface.encode() + b"\0"
    definition = (
        f"@{INTERFACE_GLOBAL} = internal constant [{len(encoded)} x i8] "
        f'c"{escape_bytes(encoded)}", section "{INTERFACE_SECTION}", align 1\n'
    )
    text = ll_text if ll_text.endswith("\n") else f"{ll_text}\n"
    return extend_used_list(text + definition, "llvm.used", (INTERFACE_GLOBAL,))
