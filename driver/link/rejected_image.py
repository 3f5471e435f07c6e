"""Which image of which input a link stopped at.

The linker wrapper names neither the object nor the image that its bitcode reader stops at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.compile.reread import reader_command
from mlir_offload.driver.message.journal import ToolRun
from mlir_offload.driver.message.tool_rule import explained
from mlir_offload.offload.container.binary import PackagedImage
from mlir_offload.offload.image import is_bitcode
from mlir_offload.offload.link.objects import ObjectContents
from mlir_offload.offload.skew.check import image_name
from mlir_offload.toolchain.errors import MlirOffloadError

_HEAD_BYTES = 4
_MOST_IMAGES = 64


def diagnose_rejected(
    context: BuildContext,
    contents: Sequence[ObjectContents],
    diagnose: Callable[[ToolRun], MlirOffloadError],
    run: ToolRun,
) -> MlirOffloadError:
    """Return the error for a link that failed, with the image that its bitcode reader stopped at."""
    error = explained(diagnose(run), run.completed, run.workspace)
    if error.rule and not error.location:
        for item, image in _bitcode_images(contents):
            if _is_refused(context, image):
                name = image_name(image.kind, image.triple, image.arch)
                error.message = f"image {name}: {error.message}"
                error.location = item.location
                break
    return error


def _bitcode_images(
    contents: Sequence[ObjectContents],
) -> Iterator[tuple[ObjectContents, PackagedImage]]:
    found = (
        (item, image)
        for item in contents
        for image in item.images
        if is_bitcode(image.content.head(_HEAD_BYTES))
    )
    return (pair for _, pair in zip(range(_MOST_IMAGES), found, strict=False))


def _is_refused(context: BuildContext, image: PackagedImage) -> bool:
    """Return whether the linking clang cannot read an image."""
    path = context.workspace / "rejected.bc"
    path.write_bytes(image.content.whole())
    return (
        context.executor.runner.run(reader_command(context.llvm.tool("clang"), path)).returncode
        != 0
    )
