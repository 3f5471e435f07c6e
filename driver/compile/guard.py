"""Check what the user hands in against the tools that are to read it, before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver import __version__
from mlir_offload.driver.compile import reread
from mlir_offload.driver.message import skew
from mlir_offload.driver.message.report import report
from mlir_offload.driver.option.command_line import Mode
from mlir_offload.driver.option.inputs import IR_SUFFIXES
from mlir_offload.driver.system.accepted import Accepted, folder_stamps, load_accepted
from mlir_offload.offload.skew import check
from mlir_offload.toolchain.byte_view import read_head
from mlir_offload.toolchain.digest import sha256
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.skew import fact
from mlir_offload.toolchain.tables import known_release

if TYPE_CHECKING:
    from mlir_offload.driver.compile.context import BuildContext
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.offload.skew.check import SkewFinding

_BITCODE = b"BC\xc0\xde"
# The modules and tables by which an image is judged.
_OWN = Path(__file__).parents[2]
_CHECKING = (
    *("offload", "offload/container", "offload/data", "offload/device", "offload/link"),
    *("offload/skew", "toolchain", "toolchain/bitcode", "toolchain/data", "toolchain/skew"),
)
# What this link does otherwise than the linker wrapper alone: it has an adapter for fatbinary.
_CURED = frozenset({"NV007"})


def guard_inputs(context: BuildContext) -> None:
    """Raise CompatibilityError for what a tool of this call would refuse or misread.

    What is not an error is said. What this call makes itself is read by the release that wrote it.
    """
    paths = tuple(_ir_files(context))
    # What a module embeds is checked with the module.
    objects = [item for item in context.given if item.images and item.path not in context.compiled]
    if not paths and not objects:
        return
    accepted = None
    if context.releases.is_consumer_here and not context.llvm.is_measured:
        objects = [item for item in objects if not reread.is_same_build(context, item)]
        if not context.executor.dry_run:
            reread.reread_inputs(context, paths, objects)
    elif known_release(context.consumer) is None:
        accepted = _accepted(context)
    unknown = list(_unknown(objects, accepted))
    if paths or unknown:
        _say(dict.fromkeys(_findings(context, paths, unknown, accepted)))


def _ir_files(context: BuildContext) -> Iterator[Path]:
    """Return the inputs that are LLVM IR, whatever their names are."""
    for path in context.compiled:
        if path.suffix in IR_SUFFIXES:
            yield path
    if context.options.mode is Mode.LINK:
        # Most files of a link have been read already.
        no_bitcode = {item.path for item in context.given if not item.is_bitcode}
        for path in context.options.inputs:
            if path not in context.compiled and path not in no_bitcode and _is_bitcode(path):
                yield path


def _is_bitcode(path: Path) -> bool:
    return read_head(path, len(_BITCODE)) == _BITCODE


def _accepted(context: BuildContext) -> Accepted:
    """Return the images that this check had nothing to say about for the same tools, whatever the file."""
    own = (__version__, *folder_stamps(_OWN / name for name in _CHECKING))
    cuda = "" if context.cuda is None else f"{context.cuda.root} {context.cuda.version}"
    return load_accepted("images", (*own, str(context.consumer), cuda))


def _unknown(
    objects: Iterable[ObjectContents], accepted: Accepted | None
) -> Iterator[tuple[ObjectContents, list[bytes]]]:
    """Yield the objects with an image that was not accepted before, and the digests of their images."""
    for item in objects:
        digests = [] if accepted is None else _digests(item)
        if accepted is None or not all(map(accepted.holds, digests)):
            yield item, digests


def _digests(item: ObjectContents) -> list[bytes]:
    """Return a digest for each image, of its bytes and of what its container says of it."""
    return [
        sha256(
            repr((image.kind, image.image_kind, image.version, image.strings)).encode()
            + image.content.whole()
        ).digest()
        for image in item.images
    ]


def _findings(
    context: BuildContext,
    paths: Iterable[Path],
    objects: Iterable[tuple[ObjectContents, list[bytes]]],
    accepted: Accepted | None,
) -> Iterator[SkewFinding]:

    consumer = fact.Consumer(context.consumer, context.cuda)
    for path in paths:
        yield from check.check_file(path, consumer)
    check_objects = check.check_objects
    for item, digests in objects:
        found = check_objects([item], consumer)
        yield from found
        if accepted is not None and all(one.rule in _CURED for one in found):
            accepted.add(digests)
    if accepted is not None and not context.executor.dry_run:
        accepted.keep()


def _say(findings: Iterable[SkewFinding]) -> None:
    """Say all that was found; the last error ends the call."""
    options = report().options
    counting = [one for one in skew.counted(findings, options) if one.rule not in _CURED]
    errors = [one for one in counting if skew.is_error(one)]
    for one in counting:
        if one not in errors[-1:] and (options.verbose or not skew.is_note(one)):
            report().add(skew.message_of(one))
    if errors:
        last = errors[-1]
        raise CompatibilityError(last.text, hint=last.hint, location=last.location, rule=last.rule)
