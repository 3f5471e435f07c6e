"""Link with `-r`: merge objects into one that is device-linked and registers its kernels.

It contains no runtime and no libraries; the link of the program adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.link.device_link import DeviceLink
from mlir_offload.driver.link.non_rdc_object import check_non_rdc
from mlir_offload.driver.link.relocatable import RelocatableLink, link_relocatable
from mlir_offload.driver.link.relocatable_links import DeviceLinkedInputs
from mlir_offload.driver.option.compile_options import RELOCATABLE_OPTIONS
from mlir_offload.driver.option.link_line import LinkItem, parse_link_line
from mlir_offload.driver.step.object_file import Detach
from mlir_offload.offload.abi import load_abi
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError
from mlir_offload.toolchain.process import Command, Completed

_OBJECT = ".o"
_OPTION = "-r"


def link_to_object(
    context: BuildContext,
    prepared: DeviceLinkedInputs,
    line: Sequence[str],
    device_link: DeviceLink,
    diagnose: Callable[[Completed], MlirOffloadError],
) -> Path:
    """Link the objects of a link line and their device code, and return the object.

    Raises CompatibilityError if the linking LLVM does not support this for a target or for a library.
    """
    check_non_rdc(context, prepared.remaining, _OPTION)
    items = [item for item in parse_link_line(line) if item.text not in RELOCATABLE_OPTIONS]
    done = {item.path for item in prepared.remaining if item.is_device_linked and not item.member}
    apart = [
        item.text
        for item in items
        if item.text in prepared.replaced.values() or (item.path is not None and item.path in done)
    ]
    others = [item for item in items if item.text not in apart]
    words = [item.text for item in others]
    if any(item.images for item in prepared.remaining):
        words = [str(_link_device_code(context, others, device_link, diagnose))]
    linked = context.workspace / "linked.o"
    linker = ("-fuse-ld=lld",) if context.llvm.has("ld.lld") else ()
    argv = (str(context.llvm.tool("clang")), _OPTION, *linker, *words, *apart)
    context.executor.tool(Command((*argv, "-o", str(linked))), linked, diagnose=diagnose)
    return linked


def _link_device_code(
    context: BuildContext,
    items: Sequence[LinkItem],
    device_link: DeviceLink,
    diagnose: Callable[[Completed], MlirOffloadError],
) -> Path:
    """Return an object with the linked device code of all items, which a later link does not link again."""
    files = tuple(item.path for item in items if item.path is not None)
    _check_files(context, files)
    options = tuple(item.text for item in items if item.path is None)
    linked, detached = (context.workspace / name for name in ("device.o", "detached.o"))
    link_relocatable(context, RelocatableLink(files, linked, device_link, options), diagnose)
    context.executor.step(Detach(source=linked, output=detached))
    return detached


def _check_files(context: BuildContext, files: Sequence[Path]) -> None:
    """Raise CompatibilityError if the linker wrapper would ignore the device code of a file."""
    if load_abi(context.consumer).has_relocatable_link:
        return
    other = next((path for path in files if path.suffix != _OBJECT), None)
    if other is not None:
        msg = f"-r: LLVM {context.consumer} links objects (.o) to one, not {other.name}"
        hint = "name the objects that the library is made of, or link with LLVM 19 or newer"
        raise CompatibilityError(msg, hint=hint, location=str(other))
