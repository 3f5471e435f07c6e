"""Steps on device images in containers."""

from __future__ import annotations

import re
from pathlib import Path

import click

from mlir_offload.driver.package.file import write_package
from mlir_offload.driver.step.group import (
    PATH,
    consumer_option,
    output_option,
    source_argument,
    step,
)
from mlir_offload.driver.step.image_container import unpack_image
from mlir_offload.offload.abi import load_abis
from mlir_offload.offload.container.packager import ImageArgument, image_argument
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.target import device_kind, kind_of_image

# A comma in a file name does not end the value.
_IMAGE_PARTS = re.compile(r",(?=(?:file|triple|arch|kind|feature)=)")


@step.command("unpack")
@source_argument
@click.option("--kernels", type=PATH, required=True, help="where their heads go, as LLVM IR")
@output_option
def _unpack(source: Path, kernels: Path, output: Path) -> None:
    """Take the device image and the heads of its kernels out of what an image step made."""
    unpack_image(source, output, kernels)


@step.command("package")
@click.option(
    "--image", "images", multiple=True, required=True, metavar="file=,triple=,arch=,kind="
)
@consumer_option
@output_option
def _package(images: tuple[str, ...], consumer: str, output: Path) -> None:
    """Write device images into one offload binary, as clang-offload-packager does."""
    arguments = [_image_argument(text) for text in images]
    files = [(argument, argument.value("file")) for argument in arguments]
    write_package(files, load_abis(consumer), output)


def _image_argument(text: str) -> ImageArgument:
    """Read one `--image=` argument. Raises UsageError where a key is missing."""
    words = _IMAGE_PARTS.split(text)
    keys = {word.partition("=")[0] for word in words if not word.endswith("=")}
    missing = [key for key in ("file", "triple", "arch", "kind") if key not in keys]
    if missing:
        msg = f"--image={text}: no {' or '.join(missing)}"
        raise UsageError(msg, hint="write --image=file=FILE,triple=TRIPLE,arch=ARCH,kind=KIND")
    values = dict(word.partition("=")[::2] for word in words)
    kind = kind_of_image(values["kind"], values["triple"])
    if kind is not None:
        # Containers do not name the CPU's.
        values["arch"] = device_kind(kind).container_arch(values["arch"])
    return image_argument([f"{key}={value}" for key, value in values.items()])
