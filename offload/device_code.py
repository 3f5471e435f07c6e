"""Read any device image: its format is told from its content, whatever its name or container says."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from mlir_offload.offload.code_object import (
    code_object_kernel_names,
    hash_code_object_kernels,
    read_code_object,
)
from mlir_offload.offload.cubin import cubin_kernel_names, hash_cubin_kernels, read_cubin
from mlir_offload.offload.device_bitcode import read_device_bitcode
from mlir_offload.offload.elf import ELF_MAGIC, Machine
from mlir_offload.offload.host_image import (
    hash_host_image_kernels,
    host_image_kernel_names,
    read_host_image,
)
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.kernel import DeviceCode
from mlir_offload.offload.ptx_image import is_ptx, ptx_kernel_names, read_ptx
from mlir_offload.offload.spirv import is_spirv, read_spirv, spirv_kernel_names
from mlir_offload.toolchain.byte_view import ByteView

_MACHINE = slice(18, 20)


def _bitcode_kernel_names(view: ByteView) -> tuple[str, ...]:
    return tuple(kernel.name for kernel in read_device_bitcode(view).kernels)


def _hash_bitcode_kernels(view: ByteView, names: Collection[str]) -> dict[str, str]:
    kernels = read_device_bitcode(view, with_hashes=True).kernels
    return {
        kernel.name: kernel.code_sha256
        for kernel in kernels
        if kernel.name in names and kernel.code_sha256
    }


def _hash_none(_view: ByteView, _names: Collection[str]) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class _Format:
    """How images of one format are read."""

    read: Callable[[ByteView], DeviceCode]
    names: Callable[[ByteView], tuple[str, ...]]
    hash: Callable[[ByteView, Collection[str]], dict[str, str]] = _hash_none


_HOST_IMAGE = _Format(read_host_image, host_image_kernel_names, hash_host_image_kernels)
_ELF_FORMATS = {
    Machine.CUDA: _Format(read_cubin, cubin_kernel_names, hash_cubin_kernels),
    Machine.AMDGPU: _Format(read_code_object, code_object_kernel_names, hash_code_object_kernels),
    Machine.X86_64: _HOST_IMAGE,
    Machine.AARCH64: _HOST_IMAGE,
}
_BITCODE = _Format(read_device_bitcode, _bitcode_kernel_names, _hash_bitcode_kernels)
_PTX = _Format(read_ptx, ptx_kernel_names)
_SPIRV = _Format(read_spirv, spirv_kernel_names)


def read_device_code(view: ByteView) -> DeviceCode | None:
    """Read what a device image says of itself; None where its format is not known.

    Raises VerificationError where it is damaged.
    """
    found = _format_of(view)
    return found.read(view) if found else None


def image_kernels(view: ByteView) -> frozenset[str]:
    """Return the names of the kernels in a device image, no more of which is read than they need.

    Of an image for a host processor they are its global functions. Empty where the format is not
    known. Raises VerificationError where the image is damaged.
    """
    found = _format_of(view)
    return frozenset(found.names(view) if found else ())


def hash_kernels(view: ByteView, names: Collection[str]) -> dict[str, str]:
    """Return a SHA-256 of the code of those kernels that a device image defines.

    Of one format, two are equal only where the code is, whatever else is in the images. PTX and SPIR-V
    have no such hash: what their code means depends on what stands around it. Raises VerificationError
    where the image is damaged.
    """
    found = _format_of(view)
    return found.hash(view, frozenset(names)) if found else {}


def _format_of(view: ByteView) -> _Format | None:
    head = view.head(_MACHINE.stop)
    if head.startswith(ELF_MAGIC):
        machine = int.from_bytes(head[_MACHINE], "little")
        return next((row for key, row in _ELF_FORMATS.items() if key == machine), None)
    if is_bitcode(head):
        return _BITCODE
    if is_spirv(view):
        return _SPIRV
    return _PTX if is_ptx(view) else None
