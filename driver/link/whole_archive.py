"""Replace `--whole-archive` libraries by their members if the program has CPU device code.

The wrapper of LLVM 19 and newer also passes such libraries, with the option, to the device link of the CPU.
The host objects in them would become part of the device image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.option.link_line import LinkItem, parse_link_line
from mlir_offload.driver.step import object_file
from mlir_offload.offload.container.archive import is_archive, iterate_members
from mlir_offload.offload.link.held_image import runs_on_host
from mlir_offload.toolchain.byte_view import open_view

if TYPE_CHECKING:
    from mlir_offload.driver.compile.context import BuildContext
    from mlir_offload.offload.link.objects import ObjectContents

_OPTIONS = frozenset(
    f"-Wl,{dashes}{name}"
    for dashes in ("-", "--")
    for name in ("whole-archive", "no-whole-archive")
)


def without_whole_archives(
    context: BuildContext, contents: Iterable[ObjectContents], items: Sequence[str]
) -> Sequence[str]:
    """Return the link line with `--whole-archive` libraries replaced by their members, if that is required."""
    is_for_cpu = any(runs_on_host(image) for item in contents for image in item.images)
    words = parse_link_line(items) if is_for_cpu else ()
    if not any(word.is_whole for word in words):
        return items
    return [
        item
        for number, word in enumerate(words)
        if not _is_needless(word, words)
        for item in _items_for(context, word, number)
    ]


def _is_needless(word: LinkItem, words: Sequence[LinkItem]) -> bool:
    """Return whether a word is a `--whole-archive` option without a remaining library.

    The wrapper does not know `--pop-state`: the device link would apply the option to all that follows.
    """
    return word.text in _OPTIONS and all(one.path is not None for one in words if one.is_whole)


def _items_for(context: BuildContext, word: LinkItem, number: int) -> Sequence[str]:
    if not word.is_whole or word.path is None or not (names := _member_names(word.path)):
        return (word.text,)
    directory = context.workspace / f"members{number}"
    context.executor.step(object_file.Members(source=word.path, output=directory))
    return [
        str(object_file.member_file(directory, ordinal, name)) for ordinal, name in enumerate(names)
    ]


def _member_names(library: Path) -> tuple[str, ...]:
    """Return the names of the members of a static library; none for another file."""
    with open_view(library) as view:
        return tuple(member.name for member in iterate_members(view)) if is_archive(view) else ()
