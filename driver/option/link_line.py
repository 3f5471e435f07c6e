"""The link line: what the linker is given, and which files it names. Compilations without a link load nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.option.command_line import IR_SUFFIXES, sources
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
# Options of linkers whose value is a file to write.
_WRITES = ("Map", "dependency-file", "out-implib", "time-trace")
_FOLDER_OPTIONS = frozenset({"-L", "--library-path", "-library-path"})
_PUSH, _POP = "push-state", "pop-state"


class LinkItem(Struct, frozen=True):
    """One word for the linker, spelled for clang; a file has its path.

    A library `is_whole` between `--whole-archive` and `--no-whole-archive`.
    """

    text: str
    path: Path | None = None
    is_whole: bool = False


class _State(Struct):
    """What an option on the line changes for the files behind it, and what was pushed."""

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
    """Return the words of a link line in their order, with the files that they name.

    `-l` is looked up in the directories of `-L`, which hold for the whole line. Libraries of the
    system are not looked into: device code is not installed there. A build asks for its line in several places, and
    looks for its files once: `forget_link_lines` precedes it.
    """
    return _parsed(tuple(link_items), str(Path.cwd()))


def forget_link_lines() -> None:
    """Have the files of all link lines looked for again."""
    _parsed.cache_clear()


@cache
def _parsed(link_items: tuple[str, ...], _directory: str) -> tuple[LinkItem, ...]:
    return tuple(_items(link_items, list(_library_folders(link_items))))


def _library_folders(link_items: Sequence[str]) -> Iterator[Path]:
    """Yield the directories of `-L`, which may be given to the linker as `-Wl,-L,DIRECTORY` too."""
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
    """Yield the files besides its output that the linker is asked to write."""
    before = ""
    for word in _words(link_items):
        name = word.removeprefix(_FOR_LINKER).lstrip("-")
        option, is_joined, value = name.partition("=")
        if word.startswith(_FOR_LINKER) and option in _WRITES and is_joined:
            yield Path(value)
        elif before in _WRITES and word.startswith(_FOR_LINKER):
            yield Path(word.removeprefix(_FOR_LINKER))
        before = name if word.startswith(_FOR_LINKER) else ""


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
    """Return the items, those of `-Wl,a,b` one by one."""
    for item in link_items:
        if item.startswith(_FOR_LINKER):
            yield from (f"{_FOR_LINKER}{word}" for word in item[len(_FOR_LINKER) :].split(","))
        else:
            yield item


def _file_of(name: str, folders: Sequence[Path], *, is_static: bool) -> Path | None:
    """Return the file that a word names; None for an option, a library of the system, a symbol."""
    if not name.startswith("-"):
        path = Path(name)
        return path if path.is_file() else None
    if not name.startswith("-l"):
        return None
    wanted = name[2:]
    endings = (".a",) if is_static else (".so", ".a")
    names = [wanted[1:]] if wanted.startswith(":") else [f"lib{wanted}{end}" for end in endings]
    candidates = (folder / file for folder in folders for file in names)
    return next((path for path in candidates if path.is_file()), None)


def read_link_inputs(options: CompileOptions) -> tuple[ObjectContents, ...]:
    """Look for device code, and calls of MLIR's libraries, in what the link line names, each file once.

    A shared library has had its device link: it registers its own kernels, with its own runtime.
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
