"""Device images as the packager takes them."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.keyed import Keyed
from mlir_offload.offload.container.packager import ImageArgument, image_argument
from mlir_offload.toolchain.target import device_kind, kind_of_image


class PackagedImage(Keyed, frozen=True):
    """A device image to be packaged, by the keys of clang-offload-packager."""

    file: Path
    triple: str
    arch: str
    kind: str
    feature: str = ""

    @property
    def argument(self) -> ImageArgument:
        """Return what the container holds of it: containers do not name the architecture of the CPU."""
        kind = kind_of_image(self.kind, self.triple)
        arch = self.arch if kind is None else device_kind(kind).container_arch(self.arch)
        words = [f"file={self.file}", f"triple={self.triple}", f"arch={arch}", f"kind={self.kind}"]
        return image_argument((*words, f"feature={self.feature}") if self.feature else words)
