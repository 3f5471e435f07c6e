"""Device code that was linked when it was made: the linker wrapper takes it instead of a link of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.offload.abi import load_abi
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.target import Target, device_kind


def with_linked_code(
    context: BuildContext, made: Sequence[ObjectContents]
) -> tuple[ObjectContents, ...]:
    """Return the object of the source, with the linked code added to its images."""
    files = () if context.options.dry_run else context.linked_files
    images = tuple(_image(*file) for file in files)
    return tuple(replace(item, images=(*item.images, *images)) for item in made)


def _image(target: Target, path: Path) -> PackagedImage:
    kind = device_kind(target.kind).offload_kind
    with open_view(path) as view:
        return PackagedImage(kind, 0, 0, (("triple", target.triple), ("arch", target.arch)), view)


def override_arguments(context: BuildContext) -> tuple[str, ...]:
    """Return what the linker wrapper needs to take the code as it is."""
    abi = load_abi(context.consumer)
    return tuple(
        argument
        for target, path in context.linked_files
        for argument in abi.override_arguments(target.kind, path.absolute())
    )
