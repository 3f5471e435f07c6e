"""Libraries that are linked as a whole beside device code for the CPU: given to the linker as objects.

The wrapper of LLVM 19 and newer hands such libraries to the device link of the CPU too, with the
option, so that the host's objects in them would become part of the device image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlir_offload.driver.link_line import LinkItem, parse_link_line
from mlir_offload.offload.archive import is_archive, iterate_members
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.driver.context import BuildContext
    from mlir_offload.offload.objects import ObjectContents


@dataclass(frozen=True, slots=True)
class MemberFile:
    """A member of a library as a file of its own; `content` is None where it is one already."""

    path: Path
    content: ByteView | None


def plain_link_items(context: BuildContext, contents: Iterable[ObjectContents]) -> Sequence[str]:
    """Return the link line, with members in place of whole libraries where the wrapper needs that."""
    items = context.options.link_items
    if not any(image.kind == Kind.OPENMP for item in contents for image in item.images):
        return items
    parsed = parse_link_line(items)
    if not any(item.is_whole for item in parsed):
        return items
    return [word for number, item in enumerate(parsed) for word in _words(context, item, number)]


def member_files(library: Path, directory: Path) -> tuple[MemberFile, ...]:
    """Return the members of a static library, placed in a directory; none of another file."""
    with open_view(library) as view:
        if not is_archive(view):
            return ()
        return tuple(
            MemberFile(member.file, None)
            if member.content is None and member.file is not None
            else MemberFile(directory / f"{number}.{Path(member.name).name}", member.content)
            for number, member in enumerate(iterate_members(view))
        )


def write_members(library: Path, directory: Path) -> None:
    """Write each member of a library to a file of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    for member in member_files(library, directory):
        if member.content is not None:
            with member.path.open("wb") as stream:
                stream.writelines(member.content.chunks())


def _words(context: BuildContext, item: LinkItem, number: int) -> Sequence[str]:
    if not item.is_whole or item.path is None:
        return (item.text,)
    directory = context.workspace / f"members{number}"
    members = member_files(item.path, directory)
    if not members:
        return (item.text,)
    if any(member.content is not None for member in members):
        context.executor.step("members", (item.path, "-o", directory))
    return [str(member.path) for member in members]
