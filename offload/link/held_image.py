"""Enumerate the device images of a file, in any container, and their kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from mlir_offload.offload.device import code as device_code
from mlir_offload.offload.device import ptx_image, spirv
from mlir_offload.offload.elf import ELF_MAGIC
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.kind_format import FORMATS
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.target import DEVICE_KINDS

if TYPE_CHECKING:
    from mlir_offload.offload.container.binary import PackagedImage
    from mlir_offload.offload.link.objects import ObjectContents

_GPUS = ("nvptx", "amdgcn")
_DEVICES = (*_GPUS, "spirv")
_MAGIC_BYTES = 4


class HeldImage(Struct, frozen=True):
    """An image of a kind and architecture; `kernels` is None if they cannot be read."""

    kind: str
    arch: str
    kernels: frozenset[str] | None


class TargetedImage(Protocol):
    """An image whose container stores its kind and triple."""

    @property
    def kind(self) -> str:
        """Return the offload kind."""

    @property
    def triple(self) -> str:
        """Return the target triple."""


def runs_on_host(image: TargetedImage) -> bool:
    """Return whether an image is for the CPU; all such images run on one device, whatever their arch."""
    if image.triple.startswith(_DEVICES):
        return False
    return any(kind.is_cpu and kind.offload_kind == image.kind for kind in DEVICE_KINDS)


def device_arch(image: PackagedImage) -> str:
    """Return the arch of the image that results from a link; empty for the CPU."""
    return "" if runs_on_host(image) else image.arch


def loaded_images(item: ObjectContents) -> Iterator[HeldImage]:
    """Yield the linked images, which a run of the program would load.

    Raises VerificationError if an image or its container is corrupt.
    """
    for one in FORMATS:
        for arch, content in one.linked_images(item):
            kernels = None if content is None else told_kernels(content)
            yield HeldImage(one.name, arch, kernels)
    yield from map(_packaged, item.linked_images)
    if not item.is_relocatable:
        yield from map(_packaged, item.images)


def all_images(item: ObjectContents) -> Iterator[HeldImage]:
    """Yield the images of a file, including those still to be linked. Raises as `loaded_images`."""
    yield from loaded_images(item)
    if item.is_relocatable:
        yield from map(_packaged, item.images)


def _packaged(image: PackagedImage) -> HeldImage:
    return HeldImage(image.kind, device_arch(image), packaged_kernels(image))


def packaged_kernels(image: PackagedImage) -> frozenset[str] | None:
    """Return the kernels of an image in an offload binary; None if they cannot be determined."""
    if is_bitcode(image.content.head(_MAGIC_BYTES)) and not image.triple.startswith(_GPUS):
        # Bitcode for the CPU does not mark its kernels.
        return None
    return told_kernels(image.content)


def told_kernels(view: ByteView) -> frozenset[str] | None:
    """Return the kernels that an image defines; None for a format that is not read.

    Raises VerificationError if the image is corrupt. Bitcode is an exception: it may contain records that
    this reader does not support, and the device link will read it.
    """
    head = view.head(_MAGIC_BYTES)
    if is_bitcode(head):
        with contextlib.suppress(VerificationError):
            return device_code.image_kernels(view)
        return None
    return device_code.image_kernels(view) if head == ELF_MAGIC or _is_text(view) else None


def _is_text(view: ByteView) -> bool:
    """Return whether the image is PTX or SPIR-V."""
    return ptx_image.is_ptx(view) or spirv.is_spirv(view)


def is_equal(one: ByteView, other: ByteView) -> bool:
    """Return whether two images are equal, byte for byte."""
    pieces = zip(one.chunks(), other.chunks(), strict=True)
    return one.size == other.size and all(ours == theirs for ours, theirs in pieces)
