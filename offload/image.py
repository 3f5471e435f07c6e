"""The kinds of device images in containers, and their formats by content."""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum

from mlir_offload.toolchain.pattern import pattern

# The number of bytes that identify the format of an image: PTX may begin with a long comment.
FORM_BYTES = 1 << 12

_BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_ELF_MAGIC = b"\x7fELF"
_ELF_BIG_ENDIAN = 2
_ELF_MACHINE_CUDA = 190
_ELF_MACHINE_AMDGPU = 224
_ELF_TYPES = {1: "relocatable", 2: "executable", 3: "shared"}

PTX_BEGIN = pattern(rb"((?:\s++|//[^\n]*+|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*/)*)\.version(?!\w)")
"""The beginning of PTX: comments, which are the group, before the first directive."""
AMDGPU_KERNEL = pattern(rb"^[ \t]*\.amdhsa_kernel ([^\s;]+)", re.MULTILINE)
"""The directive that begins the kernel descriptor in assembly for AMD GPUs."""


class ImageKind(IntEnum):
    """The format of an image, as numbered in `llvm/Object/OffloadBinary.h`."""

    NONE = 0
    OBJECT = 1
    BITCODE = 2
    CUBIN = 3
    FATBINARY = 4
    PTX = 5
    SPIRV = 6


class ImageForm(StrEnum):
    """The format of an image by its content, as far as links distinguish it."""

    BITCODE = "LLVM bitcode"
    OBJECT = "relocatable object"
    EXECUTABLE = "executable"
    SHARED_OBJECT = "shared object"
    RELOCATABLE_CUBIN = "relocatable cubin"
    EXECUTABLE_CUBIN = "executable cubin"
    AMDGPU_OBJECT = "relocatable AMDGPU object"
    AMDGPU_ASSEMBLY = "assembly for AMD GPUs"
    HSACO = "linked AMDGPU code object"
    FATBINARY = "fat binary of CUDA"
    BUNDLE = "offload bundle"
    OFFLOAD_BINARY = "offload binary"
    PTX = "PTX"
    SPIRV = "SPIR-V"
    UNKNOWN = "a file of an unknown format"


_MAGICS: tuple[tuple[bytes, ImageForm], ...] = (
    *((magic, ImageForm.BITCODE) for magic in _BITCODE_MAGICS),
    (b"\x50\xed\x55\xba", ImageForm.FATBINARY),
    (b"__CLANG_OFFLOAD_BUNDLE__", ImageForm.BUNDLE),
    (b"CCOB", ImageForm.BUNDLE),
    (b"\x10\xff\x10\xad", ImageForm.OFFLOAD_BINARY),
    (b"\x03\x02\x23\x07", ImageForm.SPIRV),
    (b"\x07\x23\x02\x03", ImageForm.SPIRV),
)

_ELF_FORMS = {
    ("relocatable", _ELF_MACHINE_CUDA): ImageForm.RELOCATABLE_CUBIN,
    ("executable", _ELF_MACHINE_CUDA): ImageForm.EXECUTABLE_CUBIN,
    ("relocatable", _ELF_MACHINE_AMDGPU): ImageForm.AMDGPU_OBJECT,
    ("shared", _ELF_MACHINE_AMDGPU): ImageForm.HSACO,
}
_OTHER_ELF_FORMS = {
    "relocatable": ImageForm.OBJECT,
    "executable": ImageForm.EXECUTABLE,
    "shared": ImageForm.SHARED_OBJECT,
}


def is_bitcode(data: bytes) -> bool:
    """Return whether the bytes begin with the magic of LLVM bitcode, raw or in its wrapper header."""
    return data[:4] in _BITCODE_MAGICS


def image_form_of(head: bytes) -> ImageForm:
    """Return the format identified by the first bytes (FORM_BYTES of them, or fewer at the end)."""
    for magic, form in _MAGICS:
        if head.startswith(magic):
            return form
    if head.startswith(_ELF_MAGIC):
        return _elf_form(head)
    return ImageForm.PTX if PTX_BEGIN.match(head[:FORM_BYTES]) else ImageForm.UNKNOWN


def _elf_form(head: bytes) -> ImageForm:
    """Return the format identified by `e_type` and `e_machine`, which follow the 16 bytes of `e_ident`."""
    order = "big" if head[5:6] == bytes([_ELF_BIG_ENDIAN]) else "little"
    sort = _ELF_TYPES.get(int.from_bytes(head[16:18], order), "")  # type: ignore[arg-type]
    machine = int.from_bytes(head[18:20], order)  # type: ignore[arg-type]
    return _ELF_FORMS.get((sort, machine), _OTHER_ELF_FORMS.get(sort, ImageForm.UNKNOWN))
