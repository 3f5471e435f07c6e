"""The learned rows that an object was compiled by, in a section of it that no program gets."""

from __future__ import annotations

from mlir_offload.offload import elf as offload_elf
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.tables import LearnedRelease, parse_learned

LEARNED_SECTION = ".mlir_offload.learned"
_LARGEST = 1 << 20


def read_learned(elf: offload_elf.ElfFile, location: str) -> tuple[LearnedRelease, ...]:
    """Return the rows in an object, those of each object that was linked into it once.

    Raises VerificationError where they are damaged.
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
