"""The learned rows that an object was compiled with, in a section that linkers drop from programs."""

from __future__ import annotations

from mlir_offload.offload import elf as offload_elf
from mlir_offload.offload.ir_syntax import escape_bytes, extend_used_list, next_metadata_number
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.tables import LearnedRelease, parse_learned

LEARNED_SECTION = ".mlir_offload.learned"
_LARGEST = 1 << 20
_GLOBAL = "mlir_offload.learned"


def read_learned(elf: offload_elf.ElfFile, location: str) -> tuple[LearnedRelease, ...]:
    """Return the distinct learned rows of an object and of the objects linked into it.

    Raises VerificationError if they are corrupt.
    """
    found: dict[str, None] = {}
    for section in elf.named(LEARNED_SECTION):
        view = elf.content(section, form="learned rows")
        if view.size > _LARGEST:
            msg = f"learned rows of {view.size} bytes"
            raise VerificationError(msg, hint="compile the object again", location=location)
        texts = view.whole().decode(errors="replace").split("\0")
        found |= dict.fromkeys(filter(None, texts))
    return tuple(parse_learned(text, location) for text in found)


def embed_learned(ll_text: str, release: LearnedRelease) -> str:
    """Return the host module with the rows; linkers drop their section from programs."""
    content = release.text.encode() + b"\0"
    number = next_metadata_number(ll_text)
    definition = (
        f'@{_GLOBAL} = private constant [{len(content)} x i8] c"{escape_bytes(content)}", '
        f'section "{LEARNED_SECTION}", align 1, !exclude !{number}\n!{number} = !{{}}\n'
    )
    text = ll_text if ll_text.endswith("\n") else f"{ll_text}\n"
    return extend_used_list(text, "llvm.compiler.used", (_GLOBAL,)) + definition
