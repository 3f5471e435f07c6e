"""Write a HIP fat binary: linked code objects in a bundle, for hipModuleLoad and __hipRegisterFatBinary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlir_offload.driver.system.workspace import open_output
from mlir_offload.offload.container.bundle import FAT_BINARY_ALIGN, BundledImage, serialize_bundle
from mlir_offload.offload.container.bundle_writer import (
    fat_binary_images,
    serialize_compressed_bundle,
)
from mlir_offload.offload.container.packager import ImageArgument
from mlir_offload.offload.image import FORM_BYTES, ImageForm, image_form_of
from mlir_offload.toolchain.byte_view import ByteView, open_view, write_all
from mlir_offload.toolchain.errors import CompatibilityError, UsageError
from mlir_offload.toolchain.target import Kind


def write_fat_binary(
    files: Sequence[tuple[ImageArgument, str]], major: int, output: Path, *, method: str
) -> None:
    """Write linked AMDGPU code objects to one bundle, compressed unless `method` is empty.

    Raises UsageError for an image of another kind or without arch, CompatibilityError for code that the HIP
    runtime cannot load, or if the release does not read compressed bundles.
    """
    for argument, name in files:
        if argument.value("kind") != Kind.HIP or not argument.value("arch"):
            msg = f"{name}: a HIP fat binary holds images of kind=hip, each with its arch="
            raise UsageError(msg, hint="write --image=file=FILE,kind=hip,arch=gfx90a")
    with contextlib.ExitStack() as stack:
        objects = [
            (argument.value("arch"), _code_object(name, stack.enter_context(open_view(Path(name)))))
            for argument, name in files
        ]
        images = fat_binary_images(objects, major=major)
        with open_output(output) as descriptor:
            for piece in _pieces(images, major, method):
                write_all(piece, descriptor)


def _code_object(name: str, view: ByteView) -> ByteView:
    form = image_form_of(view.head(FORM_BYTES))
    if form is not ImageForm.HSACO:
        msg = f"the HIP runtime loads linked code objects, not a {form}"
        hint = "link it with ld.lld -shared, or leave --format out and let the link do that"
        raise CompatibilityError(msg, hint=hint, location=name)
    return view


def _pieces(images: Sequence[BundledImage], major: int, method: str) -> Iterator[bytes]:
    if method:
        return serialize_compressed_bundle(
            images, major=major, align=FAT_BINARY_ALIGN, method=method
        )
    return serialize_bundle(images, align=FAT_BINARY_ALIGN)
