"""Read the section `.llvm.offloading`: offload binaries, and SPIR-V without a container after a link.

The linker wrapper of LLVM 22 stores SPIR-V there without a container, with zeros for alignment
(`clang/tools/clang-linker-wrapper/OffloadWrapper.cpp`). The end of a module is found by walking its
instructions.
"""

from __future__ import annotations

from array import array

from mlir_offload.offload.container.binary import PackagedImage, read_container
from mlir_offload.offload.container.packager import HEADER, MAGIC
from mlir_offload.offload.device import spirv
from mlir_offload.offload.image import ImageKind
from mlir_offload.toolchain.byte_view import CHUNK_BYTES, ByteView, skip_zeros
from mlir_offload.toolchain.target import SPIRV, SPIRV_TRIPLE, Kind

_WORD = 4
_HEADER_WORDS = 5
_FIRST_CHUNK_BYTES = 1 << 12
_STRINGS = (("triple", SPIRV_TRIPLE), ("arch", SPIRV))


def read_section(view: ByteView) -> tuple[PackagedImage, ...]:
    """Read every image of a section.

    Raises VerificationError if it contains anything but containers and SPIR-V.
    """
    found: list[PackagedImage] = []
    offset = 0
    while (offset := skip_zeros(view, offset)) < view.size:
        rest = view.part(offset, view.size - offset, "image")
        if rest.head(len(MAGIC)) != MAGIC and spirv.is_spirv(rest):
            image = bare_image(rest)
            found.append(image)
            size = image.content.size
        else:
            images, size = read_container(rest)
            found += images
        offset += size
    return tuple(found)


def bare_image(view: ByteView) -> PackagedImage:
    """Return the SPIR-V at the start of a view as an image."""
    content = view.part(0, _spirv_bytes(view), "image", form="device image")
    return PackagedImage(Kind.SYCL, ImageKind.SPIRV, 0, _STRINGS, content)


def container_bytes(view: ByteView) -> int:
    """Return the size in bytes of the offload binary at the start of a view. Raises VerificationError."""
    magic, _, size, _, _ = view.unpack(HEADER, 0, "header")
    if magic != MAGIC:
        raise view.malformed(0, "magic", f"found {magic.hex()}, expected {MAGIC.hex()}")
    if not HEADER.size <= size <= view.size:
        raise view.malformed(8, "size", f"{size} is not a valid container size")
    return int(size)


def _spirv_bytes(view: ByteView) -> int:
    """Return the size in bytes of a module, which ends at a zero word, because no instruction has zero words.

    A word with the value of a magic number ends it too: no SPIR-V instruction begins with such a word.
    """
    view.check(0, _HEADER_WORDS * _WORD, "header")
    magics = {int.from_bytes(view.head(_WORD), "little"), int.from_bytes(MAGIC, "little")}
    place, start, words = _HEADER_WORDS, 0, array("I")
    size = _FIRST_CHUNK_BYTES
    while place * _WORD + _WORD <= view.size:
        if place - start >= len(words):
            start = place
            count = min(size, (view.size - place * _WORD) // _WORD * _WORD)
            words = array("I", view.read(place * _WORD, count, "instruction"))
            size = min(2 * size, CHUNK_BYTES)
        word = words[place - start]
        if word >> 16 == 0 or word in magics:
            break
        place += word >> 16
    view.check(0, place * _WORD, "instruction")
    return place * _WORD
