"""Put the rows that a host module was made by into it."""

from __future__ import annotations

from mlir_offload.offload import learned_section
from mlir_offload.offload.ir_syntax import escape_bytes, extend_used_list, next_metadata_number
from mlir_offload.toolchain.tables import LearnedRelease

_GLOBAL = "mlir_offload.learned"


def embed_learned(ll_text: str, release: LearnedRelease) -> str:
    """Return the host module with the rows; linkers leave the section out of programs."""
    content = release.text.encode() + b"\0"
    number = next_metadata_number(ll_text)
    definition = (
        f'@{_GLOBAL} = private constant [{len(content)} x i8] c"{escape_bytes(content)}", '
        f'section "{learned_section.LEARNED_SECTION}", align 1, !exclude !{number}\n!{number} = !{{}}\n'
    )
    text = ll_text if ll_text.endswith("\n") else f"{ll_text}\n"
    return extend_used_list(text, "llvm.compiler.used", (_GLOBAL,)) + definition
