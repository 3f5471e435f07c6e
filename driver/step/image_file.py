"""Steps on device images in containers."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.package.file import write_package
from mlir_offload.driver.step import image_container
from mlir_offload.driver.step.keyed import PackagedImage
from mlir_offload.driver.step.step import Step
from mlir_offload.offload.abi import load_abis


class Package(Step, frozen=True, kw_only=True, tag="package"):
    """Write device images into one offload binary, as clang-offload-packager does."""

    images: tuple[PackagedImage, ...]
    for_clang: str
    output: Path

    def _do(self) -> None:
        files = [(image.argument, str(image.file)) for image in self.images]
        write_package(files, load_abis(self.for_clang), self.output)


class Unpack(Step, frozen=True, kw_only=True, tag="unpack"):
    """Take the device image and the heads of its kernels out of what an image step made."""

    source: Path
    kernel_heads: Path
    output: Path

    def _do(self) -> None:
        image_container.unpack_image(self.source, self.output, self.kernel_heads)
