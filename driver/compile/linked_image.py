"""Linked CUDA images: the only device code of their target, packed by the linker wrapper unchanged.

A device link of one image would only copy it, but run clang, clang-nvlink-wrapper and nvlink. Without it
the linker wrapper still registers the kernels and packs the fat binary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.kind_build import DeviceModule, ImageFile
from mlir_offload.driver.option.compile_options import Mode
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container import binary
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.target import device_kind, uses_cuda
from mlir_offload.translate import device_ir

if TYPE_CHECKING:
    from mlir_offload.driver.step.split_file import ModuleFile
    from mlir_offload.offload.link.objects import ObjectContents

# Options for the device link, or for the images that the linker wrapper selects.
_DEVICE_LINK = ("--device-", "--override-image", "--embed-bitcode", "--emit-fatbin")


def needs_no_link(context: BuildContext, module: ModuleFile, lowered: Path) -> bool:
    """Return whether a CUDA image is all device code of its target in the program.

    This holds for the only device module of the only source, if no object or library contains device code
    and the module defines all that it uses. The device link is kept for code of several kinds and for any
    option that affects it; -fno-gpu-rdc has its own device link.
    """
    options = context.options
    is_program = options.mode is Mode.LINK and not options.links_to_object
    return (
        is_program
        and context.launched is None
        and module.is_only
        and len(context.compiled) == 1
        and not context.given
        and options.gpu_rdc is None
        and options.wanted_device_code is None
        and all(uses_cuda([target.kind]) for target in context.targets)
        and not any(word in item for item in options.link_items for word in _DEVICE_LINK)
        and _is_taken(context)
        and not device_ir.calls_others(
            lowered.read_text(encoding="utf-8"), known=_linked_names(context)
        )
    )


def _is_taken(context: BuildContext) -> bool:
    cuda = context.cuda
    if cuda is None:
        return False
    version = (cuda.version.major, cuda.version.minor)
    return load_abi(context.consumer).takes_linked_cubins(version)


def _linked_names(context: BuildContext) -> tuple[str, ...]:
    """Return name prefixes of library functions that are linked in before code generation."""
    return ("__nv_",) if context.options.links_device_libraries else ()


def linked_images(context: BuildContext, device: Sequence[DeviceModule]) -> tuple[ImageFile, ...]:
    """Return the linked images of device modules, in the order of the targets."""
    found = (image for module in device for image in module.images if image.is_linked)
    return tuple(sorted(found, key=lambda image: context.targets.index(image.target)))


def with_linked_images(
    made: Sequence[ObjectContents], images: Sequence[ImageFile]
) -> tuple[ObjectContents, ...]:
    """Return the objects of the sources, with the linked images added to each."""
    packaged = tuple(map(_packaged, images))
    return tuple(replace(item, images=(*item.images, *packaged)) for item in made)


def _packaged(image: ImageFile) -> binary.PackagedImage:
    kind, target = device_kind(image.target.kind).offload_kind, image.target
    with open_view(image.path) as view:
        return binary.PackagedImage(
            kind, 0, 0, (("triple", target.triple), ("arch", target.arch)), view
        )


def override_arguments(context: BuildContext, images: Sequence[ImageFile]) -> tuple[str, ...]:
    """Return the arguments that make the linker wrapper use these images unchanged."""
    abi = load_abi(context.consumer)
    return tuple(
        argument
        for image in images
        for argument in abi.override_arguments(image.target.kind, image.path.absolute())
    )
