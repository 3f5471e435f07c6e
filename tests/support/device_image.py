"""Offload binaries of images in memory, written by the code of the compilation steps."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from mlir_offload.offload.abi import OffloadAbi
from mlir_offload.offload.container.packager import ImageRecord, image_argument, record_parts
from mlir_offload.offload.image import ImageForm, ImageKind, image_form_of
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.target import Target, device_kind

_KINDS = {
    ImageForm.BITCODE: ImageKind.BITCODE,
    ImageForm.RELOCATABLE_CUBIN: ImageKind.CUBIN,
    ImageForm.EXECUTABLE_CUBIN: ImageKind.CUBIN,
    ImageForm.FATBINARY: ImageKind.FATBINARY,
    ImageForm.PTX: ImageKind.PTX,
    ImageForm.SPIRV: ImageKind.SPIRV,
}
_OBJECTS = frozenset(
    {
        *(ImageForm.OBJECT, ImageForm.EXECUTABLE, ImageForm.SHARED_OBJECT),
        *(ImageForm.AMDGPU_OBJECT, ImageForm.HSACO),
    }
)


class DeviceImage(Struct, frozen=True):
    """`data` is bitcode or a relocatable object, because the linker wrapper silently drops linked images."""

    target: Target
    data: bytes
    image_kind: ImageKind
    feature: str = ""

    @property
    def strings(self) -> dict[str, str]:
        arch = device_kind(self.target.kind).container_arch(self.target.arch)
        strings = {"triple": self.target.triple, "arch": arch}
        return {**strings, "feature": self.feature} if self.feature else strings


def image_kind_of(data: bytes) -> ImageKind:
    form = image_form_of(data)
    return _KINDS.get(form, ImageKind.OBJECT if form in _OBJECTS else ImageKind.NONE)


def serialize_binary(images: Iterable[DeviceImage], abi: OffloadAbi) -> bytes:
    records = (_record(image, abi) for image in images)
    parts = (part for record in records for part in record_parts(record))
    return b"".join(part if isinstance(part, bytes) else part.whole() for part in parts)


def _record(image: DeviceImage, abi: OffloadAbi) -> ImageRecord:
    words = [f"{key}={value}" for key, value in image.strings.items()]
    argument = image_argument(("file=", *words, "kind="))
    return ImageRecord(
        abi.kind_code(image.target.kind),
        image.image_kind,
        argument.strings(abi),
        memory_view(image.data),
    )
