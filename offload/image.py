"""Device images: the code of one module for one target."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.toolchain.target import Target

_BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_ELF_MAGIC = b"\x7fELF"
_ELF_MACHINE_CUDA = 190


class ImageKind(IntEnum):
    """The format of an image, as numbered in `llvm/Object/OffloadBinary.h`."""

    NONE = 0
    OBJECT = 1
    BITCODE = 2
    CUBIN = 3
    FATBINARY = 4
    PTX = 5


@dataclass(frozen=True, slots=True)
class DeviceImage:
    """The code of one module for one target, and the kernels that it holds.

    `data` is bitcode or a relocatable object: the linker wrapper loses linked images in silence.
    `feature` is what the device link of LLVM 15 to 19 adds to `-mattr` for bitcode (`+ptx83`).
    """

    target: Target
    data: bytes
    image_kind: ImageKind
    kernels: tuple[str, ...] = ()
    feature: str = ""

    @property
    def strings(self) -> dict[str, str]:
        """Return the keys that the packager would be given; the CPU has no architecture there."""
        arch = "" if self.target.kind is Kind.OPENMP else self.target.arch
        strings = {"triple": self.target.triple, "arch": arch}
        return {**strings, "feature": self.feature} if self.feature else strings


def is_bitcode(data: bytes) -> bool:
    """Return whether the bytes start as LLVM bitcode does, raw or in its wrapper header."""
    return data[:4] in _BITCODE_MAGICS


def image_kind_of(data: bytes) -> ImageKind:
    """Return the format that the first bytes tell; NONE where they tell none."""
    if is_bitcode(data):
        return ImageKind.BITCODE
    if data[:4] != _ELF_MAGIC:
        return ImageKind.NONE
    is_cubin = int.from_bytes(data[18:20], "little") == _ELF_MACHINE_CUDA
    return ImageKind.CUBIN if is_cubin else ImageKind.OBJECT
