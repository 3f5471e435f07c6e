"""The device images of a file and the kernels in them, whatever container they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir_offload.offload.bundle import read_bundles
from mlir_offload.offload.elf import ELF_MAGIC, ElfFile, Machine, read_elf
from mlir_offload.offload.fatbin import FatbinImage, read_fatbins
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.offload.binary import PackagedImage
    from mlir_offload.offload.objects import ObjectContents

_ENTRY_FUNCTION = 0x10  # STO_CUDA_ENTRY
_DESCRIPTOR = ".kd"
_HIP_PREFIX = "hip"


@dataclass(frozen=True, slots=True)
class HeldImage:
    """An image of a kind and architecture; `kernels` is None where it cannot be looked into."""

    kind: str
    arch: str
    kernels: frozenset[str] | None


def loaded_images(item: ObjectContents) -> Iterator[HeldImage]:
    """Return the images that a run of the program would load: those whose link is done.

    Raises VerificationError where an image or its container is damaged.
    """
    for fatbin in item.fatbins:
        for image in read_fatbins(fatbin):
            yield HeldImage(Kind.CUDA.value, image.arch, _fatbin_kernels(image))
    for section in item.hip_fatbins:
        for bundle in read_bundles(section):
            for part in bundle.images:
                if part.kind.startswith(_HIP_PREFIX):
                    yield HeldImage(Kind.HIP.value, part.arch, image_kernels(part.content))
    yield from map(_packaged, item.finished_images)
    if not item.is_relocatable:
        yield from map(_packaged, item.images)


def all_images(item: ObjectContents) -> Iterator[HeldImage]:
    """Return the images of a file, those yet to be linked included. Raises as loaded_images."""
    yield from loaded_images(item)
    if item.is_relocatable:
        yield from map(_packaged, item.images)


def _packaged(image: PackagedImage) -> HeldImage:
    return HeldImage(image.kind, image.arch, packaged_kernels(image))


def packaged_kernels(image: PackagedImage) -> frozenset[str] | None:
    """Return the kernels of an image in an offload binary; None where they cannot be told."""
    return image_kernels(memory_view(image.data))


def same_code(kernel: str, one: PackagedImage, other: PackagedImage) -> bool:
    """Return whether a kernel that two images define is the same in both, as far as can be told."""
    return one.data == other.data


def _fatbin_kernels(image: FatbinImage) -> frozenset[str] | None:
    # What NVIDIA keeps to itself raises an error when it is read.
    return None if image.compression == "scrambled" else image_kernels(image.content)


def image_kernels(view: ByteView) -> frozenset[str] | None:
    """Return the kernels that an image defines; None for a format that is not looked into.

    Raises VerificationError where the image is damaged.
    """
    if view.head(len(ELF_MAGIC)) != ELF_MAGIC:
        return None
    elf = read_elf(view)
    match elf.machine:
        case Machine.CUDA:
            return _cubin_kernels(elf)
        case Machine.AMDGPU:
            return _amdgpu_kernels(elf)
        case _:
            return _functions(elf)


def _cubin_kernels(elf: ElfFile) -> frozenset[str]:
    return frozenset(
        symbol.name
        for symbol in elf.symbols(".symtab")
        if symbol.is_function and symbol.section > 0 and symbol.other & _ENTRY_FUNCTION
    )


def _amdgpu_kernels(elf: ElfFile) -> frozenset[str]:
    """Return the names of kernel descriptors, which stand for the kernels."""
    return frozenset(
        symbol.name.removesuffix(_DESCRIPTOR)
        for symbol in elf.symbols(_symbol_table(elf))
        if symbol.name.endswith(_DESCRIPTOR) and symbol.section > 0
    )


def _functions(elf: ElfFile) -> frozenset[str]:
    return frozenset(
        symbol.name
        for symbol in elf.symbols(_symbol_table(elf))
        if symbol.is_function and symbol.is_global and symbol.section
    )


def _symbol_table(elf: ElfFile) -> str:
    return ".symtab" if elf.is_relocatable else ".dynsym"
