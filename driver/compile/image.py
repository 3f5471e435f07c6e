"""Device images on disk: their names, their form, and the libraries that their kernels may call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.step.split_file import ModuleFile
from mlir_offload.driver.step.step import PackagedImage
from mlir_offload.offload.device import library
from mlir_offload.toolchain.errors import InputOutputError
from mlir_offload.toolchain.target import Target, device_kind
from mlir_offload.translate.device_ir import calls_others


class ImageFile(Struct, frozen=True):
    """A device image on disk; `ptx` is what it was assembled from where the user gave that.

    One that `is_linked` needs no device link: the linker wrapper packs it as it is.
    """

    path: Path
    target: Target
    feature: str = ""
    ptx: Path | None = None
    is_linked: bool = False

    @property
    def packaged(self) -> PackagedImage:
        """Return the image as the packager takes it."""
        kind = device_kind(self.target.kind).offload_kind
        return PackagedImage(self.path, self.target.triple, self.target.arch, kind, self.feature)


class DeviceModule(Struct, frozen=True):
    """What becomes of one device module: LLVM IR that tells the kernels' types, and images.

    `finished` are those that no device link takes, one for each kind.
    """

    module: ModuleFile
    ir: Path
    images: tuple[ImageFile, ...]
    finished: tuple[ImageFile, ...] = ()


def kernels_of(module: ModuleFile) -> tuple[str, ...]:
    """Return the symbols of the kernels of a module."""
    return tuple(kernel.symbol for kernel in module.module.kernels)


def as_made(image: ImageFile) -> ImageFile:
    """Return an image that a step of its own made, as what it is: bitcode, or finished code instead."""
    if image.path.suffix != ".bc" or not image.path.exists():
        return image
    with image.path.open("rb") as stream:
        if stream.read(4) == b"BC\xc0\xde":
            return image
    return ImageFile(image.path.rename(image.path.with_suffix(".o")), image.target)


def user_libraries(
    context: BuildContext,
    source: Path,
    target: Target,
    lowered: Path,
    attached: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Return the libraries of the user for a lowered module that calls functions, after a check of each.

    `attached` are those of the module, which the program names from its own directory. A module that
    calls no function of others depends on no library.
    """
    chosen = [
        item.path for item in context.options.device_flags.libraries if item.is_compatible(target)
    ]
    chosen += [source.parent / name for name in attached]
    for path in chosen:
        if not path.is_file():
            msg = f"{path}: no such file"
            raise InputOutputError(msg, hint="check the name of the device library")
    if not chosen or not calls_others(lowered.read_text(encoding="utf-8")):
        return ()

    for path in chosen:
        library.check_library(path, target, context.consumer)
        context.dependencies.add(source, path, target=str(target))
    return tuple(chosen)
