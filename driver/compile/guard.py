"""Check the user's inputs against the tools that will read them, before compiling anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.compile import reread
from mlir_offload.driver.message import skew
from mlir_offload.driver.message.report import report
from mlir_offload.driver.option.command_line import IR_SUFFIXES, Mode
from mlir_offload.offload.host import module_target
from mlir_offload.offload.skew import check
from mlir_offload.toolchain.byte_view import read_head
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.skew import fact

if TYPE_CHECKING:
    from mlir_offload.driver.compile.context import BuildContext
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.offload.skew.check import SkewFinding

_BITCODE = b"BC\xc0\xde"
# Rules that do not apply to links by this driver: its adapter for fatbinary avoids the problem.
_CURED = frozenset({"NV007"})


def guard_inputs(context: BuildContext) -> None:
    """Raise CompatibilityError for an input that a tool of this invocation would reject or misread.

    Modules for another machine are rejected too, because clang would compile them for this one.
    Warnings and notes are printed. Intermediate files are not checked, because their reader wrote them.
    """
    paths = tuple(_ir_files(context))
    # Objects of sources that are compiled here are checked as sources.
    objects = [item for item in context.given if item.images and item.path not in context.compiled]
    if not paths and not objects:
        return
    for path in context.compiled:
        if path.suffix in IR_SUFFIXES:
            module_target.check_host_module(path)
    if context.releases.is_consumer_here and not context.llvm.is_measured:
        objects = [item for item in objects if not reread.is_same_build(context, item)]
        if not context.executor.dry_run:
            reread.reread_inputs(context, paths, objects)
    _say(_findings(context, paths, objects))


def _ir_files(context: BuildContext) -> Iterator[Path]:
    """Yield the inputs that are LLVM IR; in a link, bitcode is detected by content."""
    for path in context.compiled:
        if path.suffix in IR_SUFFIXES:
            yield path
    if context.options.mode is Mode.LINK:
        # Most files of a link have been read and classified already.
        no_bitcode = {item.path for item in context.given if not item.is_bitcode}
        for path in context.options.inputs:
            if path not in context.compiled and path not in no_bitcode and _is_bitcode(path):
                yield path


def _is_bitcode(path: Path) -> bool:
    return read_head(path, len(_BITCODE)) == _BITCODE


def _findings(
    context: BuildContext, paths: Iterable[Path], objects: Iterable[ObjectContents]
) -> Iterator[SkewFinding]:
    consumer = fact.Consumer(context.consumer, context.cuda)
    for path in paths:
        yield from check.check_file(path, consumer)
    yield from check.check_objects(objects, consumer)


def _say(findings: Iterable[SkewFinding]) -> None:
    """Report the findings. Raises CompatibilityError with the last error."""
    options = report().options
    counting = [one for one in skew.counted(findings, options) if one.rule not in _CURED]
    errors = [one for one in counting if skew.is_error(one)]
    for one in counting:
        if one not in errors[-1:] and (options.verbose or not skew.is_note(one)):
            report().add(skew.message_of(one))
    if errors:
        last = errors[-1]
        raise CompatibilityError(last.text, hint=last.hint, location=last.location, rule=last.rule)
