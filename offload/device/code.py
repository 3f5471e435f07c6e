"""Read any device image; its format is identified by its content, not by its name or container."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from mlir_offload.offload.device import bitcode, code_object, cubin, host_image, ptx_image, spirv
from mlir_offload.offload.device.kernel import DeviceCode
from mlir_offload.offload.elf import ELF_MAGIC, Machine
from mlir_offload.offload.image import is_bitcode
from mlir_offload.toolchain.byte_view import ByteView

_MACHINE = slice(18, 20)


def _hash_none(_view: ByteView, _names: Collection[str]) -> dict[str, str]:
    return {}


class _Format(Struct, frozen=True):
    """The readers for images of one format."""

    read: Callable[[ByteView], DeviceCode]
    names: Callable[[ByteView], tuple[str, ...]]
    hash: Callable[[ByteView, Collection[str]], dict[str, str]] = _hash_none


def read_device_code(view: ByteView) -> DeviceCode | None:
    """Read the kernels and properties of a device image; None if its format is unknown.

    Raises VerificationError if it is corrupt.
    """
    found = _format_of(view)
    return found.read(view) if found else None


def image_kernels(view: ByteView) -> frozenset[str]:
    """Return the names of the kernels in a device image, reading no more than they require.

    For a CPU image these are its global functions. Empty if the format is unknown. Raises VerificationError
    if the image is corrupt.
    """
    found = _format_of(view)
    return frozenset(found.names(view) if found else ())


def hash_kernels(view: ByteView, names: Collection[str]) -> dict[str, str]:
    """Return a SHA-256 of the code of those kernels that a device image defines.

    Within one format, equal hashes mean equal code, whatever else is in the images. PTX and SPIR-V have no
    such hash, because the meaning of their code depends on its context. Raises VerificationError if the image
    is corrupt.
    """
    found = _format_of(view)
    return found.hash(view, frozenset(names)) if found else {}


def _format_of(view: ByteView) -> _Format | None:
    """Return the readers for an image; a reader is only imported if there is an image for it."""
    head = view.head(_MACHINE.stop)
    if head.startswith(ELF_MAGIC):
        return _elf_format(int.from_bytes(head[_MACHINE], "little"))
    if is_bitcode(head):
        return _bitcode_format()
    return _text_format(view)


def _elf_format(machine: int) -> _Format | None:
    if machine == Machine.CUDA:
        return _Format(cubin.read_cubin, cubin.cubin_kernel_names, cubin.hash_cubin_kernels)
    if machine == Machine.AMDGPU:
        return _Format(
            code_object.read_code_object,
            code_object.code_object_kernel_names,
            code_object.hash_code_object_kernels,
        )
    if machine in {Machine.X86_64, Machine.AARCH64}:
        return _Format(
            host_image.read_host_image,
            host_image.host_image_kernel_names,
            host_image.hash_host_image_kernels,
        )
    return None


def _bitcode_format() -> _Format:

    def names(view: ByteView) -> tuple[str, ...]:
        return tuple(kernel.name for kernel in bitcode.read_device_bitcode(view).kernels)

    def hashes(view: ByteView, names: Collection[str]) -> dict[str, str]:
        kernels = bitcode.read_device_bitcode(view, with_hashes=True).kernels
        return {
            kernel.name: kernel.code_sha256
            for kernel in kernels
            if kernel.name in names and kernel.code_sha256
        }

    return _Format(bitcode.read_device_bitcode, names, hashes)


def _text_format(view: ByteView) -> _Format | None:
    """Return the readers for PTX or SPIR-V, which have no hash."""
    if ptx_image.is_ptx(view):
        return _Format(ptx_image.read_ptx, ptx_image.ptx_kernel_names)

    return _Format(spirv.read_spirv, spirv.spirv_kernel_names) if spirv.is_spirv(view) else None
