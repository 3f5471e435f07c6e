"""Parse the link line and read its inputs. Compilations without a link do not import this module."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.option.command_line import IR_SUFFIXES, path_named, sources
from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.offload.link import objects as link_objects

if TYPE_CHECKING:
    from mlir_offload.offload.link.objects import ObjectContents

_FOR_LINKER = "-Wl,"
_WHOLE = {"whole-archive": True, "no-whole-archive": False}
_STATIC = {
    **dict.fromkeys(("Bstatic", "dn", "non_shared", "static"), True),
    **dict.fromkeys(("Bdynamic", "dy", "call_shared"), False),
}
# Linker options whose value is an output file.
_WRITES = ("Map", "dependency-file", "out-implib", "time-trace")
_FOLDER_OPTIONS = frozenset({"-L", "--library-path", "-library-path"})
_PUSH, _POP = "push-state", "pop-state"


class LinkItem(Struct, frozen=True):
    """One word of the link line in clang's spelling, with the path if it is a file.

    A library between `--whole-archive` and `--no-whole-archive` has `is_whole`.
    """

    text: str
    path: Path | None = None
    is_whole: bool = False


class _State(Struct):
    """The state that options set for the files after them: `--whole-archive`, `-static`."""

    is_whole: bool = False
    is_static: bool = False

    def apply(self, option: str, stack: list[tuple[bool, bool]]) -> None:
        self.is_whole = _WHOLE.get(option, self.is_whole)
        self.is_static = _STATIC.get(option, self.is_static)
        if option == _PUSH:
            stack.append((self.is_whole, self.is_static))
        elif option == _POP and stack:
            self.is_whole, self.is_static = stack.pop()


def parse_link_line(link_items: Sequence[str]) -> tuple[LinkItem, ...]:
    """Return the words of a link line in order, with the files that they name.

    `-l` is searched in the directories of `-L`, which apply to the whole line. System libraries are not
    searched, because device code is not installed there. The result is cached until `forget_link_lines`.
    """
    return _parsed(tuple(link_items), str(Path.cwd()))


def forget_link_lines() -> None:
    """Clear the cache of link lines."""
    _parsed.cache_clear()


@cache
def _parsed(link_items: tuple[str, ...], _directory: str) -> tuple[LinkItem, ...]:
    return tuple(_items(link_items, list(_library_folders(link_items))))


def _library_folders(link_items: Sequence[str]) -> Iterator[Path]:
    """Yield the directories of `-L`, also in the form `-Wl,-L,DIRECTORY`."""
    before = ""
    for word in _words(link_items):
        name = word.removeprefix(_FOR_LINKER)
        if before in _FOLDER_OPTIONS and word != name:
            yield Path(name)
        elif name.startswith("-L") and name != "-L":
            yield Path(name[2:])
        elif name.lstrip("-").startswith("library-path="):
            yield Path(name.partition("=")[2])
        before = name


def linker_outputs(link_items: Sequence[str]) -> Iterator[Path]:
    """Yield the files that the linker writes in addition to its output."""
    before = ""
    for word in _words(link_items):
        if not word.startswith(_FOR_LINKER):
            before = ""
            continue
        name = word.removeprefix(_FOR_LINKER).lstrip("-")
        option, is_joined, value = name.partition("=")
        if option in _WRITES and is_joined:
            yield Path(value)
        elif before in _WRITES:
            yield Path(word.removeprefix(_FOR_LINKER))
        before = name


def _items(link_items: Sequence[str], folders: Sequence[Path]) -> Iterator[LinkItem]:
    state = _State(is_static="-static" in link_items)
    stack: list[tuple[bool, bool]] = []
    for word in _words(link_items):
        name = word.removeprefix(_FOR_LINKER)
        if word != name:
            state.apply(name.lstrip("-"), stack)
        path = _file_of(name, folders, is_static=state.is_static)
        is_library = path is not None or name.startswith("-l")
        yield LinkItem(word, path, is_whole=state.is_whole and is_library)


def _words(link_items: Sequence[str]) -> Iterator[str]:
    """Yield the items, with `-Wl,a,b` split into `-Wl,a` and `-Wl,b`."""
    for item in link_items:
        if item.startswith(_FOR_LINKER):
            yield from (f"{_FOR_LINKER}{word}" for word in item[len(_FOR_LINKER) :].split(","))
        else:
            yield item


def _file_of(name: str, folders: Sequence[Path], *, is_static: bool) -> Path | None:
    """Return the file that a word names; None for an option, a system library, or a missing file."""
    if not name.startswith("-"):
        return path_named(name) if os.path.isfile(name) else None  # noqa: PTH113 (faster, for each input)
    if not name.startswith("-l"):
        return None
    wanted = name[2:]
    endings = (".a",) if is_static else (".so", ".a")
    names = [wanted[1:]] if wanted.startswith(":") else [f"lib{wanted}{end}" for end in endings]
    candidates = (folder / file for folder in folders for file in names)
    return next((path for path in candidates if path.is_file()), None)


def read_link_inputs(options: CompileOptions) -> tuple[ObjectContents, ...]:
    """Return the offload data, and calls of MLIR's libraries, in the files of the link line, each read once.

    In shared libraries, device code is already linked: they register their own kernels with their own runtime.
    """
    wholes: dict[Path, bool] = {}
    for item in parse_link_line(options.link_items):
        if item.path is not None:
            wholes[item.path] = wholes.get(item.path, False) or item.is_whole
    compiled = frozenset(sources(options))
    paths = [path for path in wholes if path not in compiled]
    modules = [path for path in compiled if path.suffix in IR_SUFFIXES]
    if not paths and not modules:
        return ()

    read_inputs = link_objects.read_inputs
    objects = (
        replace(contents, is_whole=True) if wholes[path] and contents.member else contents
        for path in paths
        for contents in read_inputs(path)
    )
    return (
        *objects,
        *(contents for path in modules for contents in link_objects.read_module(path)),
    )
