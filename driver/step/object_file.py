"""Steps on objects and libraries, before and after the device link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mlir_offload.driver.option.link_line import parse_link_line
from mlir_offload.driver.step.step import Keyed, Step, write_text
from mlir_offload.offload.container.archive import ArchiveMember, iterate_members
from mlir_offload.offload.elf import ELF_MAGIC
from mlir_offload.offload.link.collision import detach_object
from mlir_offload.offload.link.dummy_image import render_dummy_image
from mlir_offload.offload.link.objects import LINKED_SECTION
from mlir_offload.offload.link.relocatable_adapter import (
    registration_names,
    write_relocatable_linker,
)
from mlir_offload.offload.runtime import read_runtime_symbols
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.process import Command

MEMBER_LIST = "members.txt"
_LINKED = LINKED_SECTION.encode()


class DummyImage(Step, frozen=True, kw_only=True, tag="dummy-image"):
    """Write the module with empty images that makes the linker wrapper search static libraries."""

    source: Path
    output: Path

    def _do(self) -> None:
        write_text(self.output, render_dummy_image(self.source.read_bytes()))


class Members(Step, frozen=True, kw_only=True, tag="members"):
    """Write the members of a static library to a directory, and their list."""

    source: Path
    output: Path

    def _do(self) -> None:
        write_members(self.source, self.output)


class Detach(Step, frozen=True, kw_only=True, tag="detach"):
    """Make public stubs weak and hide linked device images, so that later links ignore them."""

    source: Path
    output: Path

    def _do(self) -> None:
        content = self.source.read_bytes()
        self.output.write_bytes(detach_object(content, location=str(self.source)))


class Replacement(Keyed, frozen=True):
    """An object, and the file that a linker reads instead."""

    file: Path
    by: Path


class RelocatableLinker(Step, frozen=True, kw_only=True, tag="relocatable-linker"):
    """Write a program that replaces the linker, so that an old linker wrapper links an object."""

    linker: str = "ld"
    replaced: tuple[Replacement, ...] = ()
    output: Path

    def _do(self) -> None:
        replaced = [(str(one.file), str(one.by)) for one in self.replaced]
        write_relocatable_linker(self.output, self.linker, replaced)


class RegistrationNames(Step, frozen=True, kw_only=True, tag="registration-names"):
    """Write renamings for llvm-objcopy that give the offload entries of an object unique symbols."""

    source: Path
    output: Path

    def _do(self) -> None:
        with open_view(self.source) as view:
            words = registration_names(view)
            write_text(self.output, "".join(f"{word}\n" for word in words))


class RuntimeSymbols(Step, frozen=True, kw_only=True, tag="runtime-symbols"):
    """Write the lists of the runtime's internal and public symbols for llvm-objcopy."""

    source: Path
    weak: Path
    output: Path

    def _do(self) -> None:
        symbols = read_runtime_symbols(self.source)
        write_text(self.output, "".join(f"{name}\n" for name in symbols.internal))
        write_text(self.weak, "".join(f"{name}\n" for name in symbols.public))


def link_items_of(link_items: Sequence[str], library: Path) -> Iterator[str]:
    """Return the words of a link line that refer to a library, as a file or by `-l`."""
    return (word.text for word in parse_link_line(link_items) if word.path == library)


def member_content(member: ArchiveMember) -> ByteView:
    """Return the content of a member, in the archive or in a separate file. Raises InputOutputError."""
    if member.content is not None:
        return member.content
    with open_view(member.file or Path(member.name)) as view:
        return view


def member_file(directory: Path, ordinal: int, name: str) -> Path:
    """Return the path of a member in `write_members`: its name, in a numbered directory."""
    return directory / str(ordinal) / (Path(name).name or "member")


def write_members(library: Path, directory: Path) -> None:
    """Write every member of a library to a file, detached if linked, and their list in order."""
    paths = []
    with open_view(library) as view:
        for ordinal, member in enumerate(iterate_members(view)):
            path = member_file(directory, ordinal, member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = member_content(member).whole()
            if content.startswith(ELF_MAGIC) and _LINKED in content:
                content = detach_object(content, location=str(path))
            path.write_bytes(content)
            paths.append(path)
    write_member_list(paths, directory)


def write_member_list(paths: Iterable[Path], directory: Path) -> None:
    """Write the list of files for `archive_command`."""
    # llvm-ar reads quoted words with backslash escapes.
    quoted = (str(path).replace("\\", "\\\\").replace('"', '\\"') for path in paths)
    text = "".join(f'"{path}"\n' for path in quoted)
    (directory / MEMBER_LIST).write_text(text, encoding="utf-8", errors="surrogateescape")


def archive_command(archiver: Path, directory: Path, output: Path) -> Command:
    """Return the command that makes a library from the listed files.

    `q` keeps all members with equal names.
    """
    return Command((str(archiver), "qcs", str(output), f"@{directory / MEMBER_LIST}"))
