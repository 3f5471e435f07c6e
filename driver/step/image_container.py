"""The output file of an image step: a device image and the kernel data that the host needs.

It is an offload binary with two additional strings besides `triple` and `arch`.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.system.workspace import open_output
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import PackagedImage, read_binary
from mlir_offload.offload.container.packager import ImageRecord, record_parts
from mlir_offload.offload.image import ImageKind
from mlir_offload.toolchain.byte_view import ByteView, copy_view, open_view, write_all
from mlir_offload.toolchain.target import Target

_KERNELS = "mlir-offload-kernels"
_LIBRARIES = "mlir-offload-libraries"


class StepImage(Struct, frozen=True):
    """An image, the declarations of its kernels as LLVM IR, and the names of libraries linked into it."""

    content: ByteView
    kernels: str
    libraries: tuple[str, ...]


def write_image(image: StepImage, target: Target, llvm_major: int, output: Path) -> None:
    """Write the image as an offload binary that tools of the LLVM release can read."""
    strings = {
        "arch": target.arch,
        _KERNELS: image.kernels,
        _LIBRARIES: ",".join(image.libraries),
        "triple": target.triple,
    }
    encoded = tuple((key.encode(), text.encode()) for key, text in strings.items())
    kind = dict(load_abi(llvm_major).kind_codes)[target.kind]
    record = ImageRecord(kind, ImageKind.NONE, encoded, image.content)
    with open_output(output) as descriptor:
        for part in record_parts(record):
            if isinstance(part, bytes):
                write_all(part, descriptor)
            else:
                copy_view(part, descriptor)


def unpack_image(container: Path, image: Path, kernels: Path) -> None:
    """Write the image and the declarations of its kernels to separate files.

    Raises VerificationError for a file that `write_image` did not write.
    """
    with open_view(container) as view:
        found = _read(view)
        with open_output(image) as descriptor:
            copy_view(found.content, descriptor)
    kernels.write_text(found.kernels, encoding="utf-8")


def image_libraries(container: Path) -> tuple[str, ...]:
    """Return the names of the device libraries in the image. Raises like unpack_image."""
    with open_view(container) as view:
        return _read(view).libraries


def read_images(view: ByteView) -> tuple[StepImage, ...]:
    """Return the images of concatenated containers. Raises like unpack_image."""
    return tuple(_step_image(view, image) for image in read_binary(view))


def _read(view: ByteView) -> StepImage:
    images = read_images(view)
    if len(images) != 1:
        raise view.malformed(0, "strings", "no image of one step")
    return images[0]


def _step_image(view: ByteView, image: PackagedImage) -> StepImage:
    strings = dict(image.strings)
    if _KERNELS not in strings or _LIBRARIES not in strings:
        raise view.malformed(0, "strings", "no image of one step")
    libraries = tuple(filter(None, strings[_LIBRARIES].split(",")))
    return StepImage(image.content, strings[_KERNELS], libraries)
