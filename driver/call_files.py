"""The files that a command line reads and writes, renamed so that they fit below any directory."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from msgspec import Struct, field

from mlir_offload.driver.option.compile_options import DeviceFlags, with_library
from mlir_offload.driver.option.pipeline_file import PIPELINE_SUFFIXES, pipeline_paths
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.toolchain.errors import MlirOffloadError

_ROOT, _UP = "__root__", "__up__"
_RUN = "run"
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_PREPROCESSED = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".hip"})
_MOST_HEADERS = 10_000
_MOST_HEADER_BYTES = 1 << 24


class Call(Struct):
    """A command line with its file names rewritten, and the files that it reads.

    `files` maps each new name to the file, `renamed` each name on the command line to its new name.
    `directories` must exist for the invocation to run. `left_out` are the options that name a directory of this
    host, such as a prefix of LLVM.
    """

    subcommand: str
    arguments: list[str] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)

    def reads(self, name: str) -> str:
        """Note an input; return its new name."""
        self.files[moved(name)] = Path(name)
        self.renamed[name] = moved(name)
        return moved(name)

    def reads_pipeline(self, value: str) -> str:
        """Note the files of a pipeline, if the value names a file; return its new name."""
        if PurePath(value).suffix not in PIPELINE_SUFFIXES:
            return value
        with contextlib.suppress(MlirOffloadError):
            for path in pipeline_paths(value):
                self.reads(str(path))
        return self.reads(value)

    def reads_keyed(self, value: str) -> str:
        """Note the file of a `KEY=FILE` value; return the value with the new name."""
        library = with_library(DeviceFlags(), value).libraries[0]
        key = f"{library.selector}=" if library.selector else ""
        return f"{key}{self.reads(str(library.path))}"

    def writes(self, name: str) -> str:
        """Note an output, whose directory must exist; return its new name."""
        self.directories.add(str(PurePath(moved(name)).parent))
        self.renamed[name] = moved(name)
        return moved(name)

    def looks_into(self, name: str) -> str:
        """Note a search directory; return its new name."""
        self.directories.add(moved(name))
        return moved(name)


def moved(name: str) -> str:
    """Return the name of a file below the archive's root. Equal file names give equal names."""
    path = PurePath(os.path.normpath(name))
    if path.is_absolute():
        return str(PurePath(_ROOT, *path.parts[1:]))
    return str(PurePath(*(_UP if part == ".." else part for part in path.parts)))


def read_call(arguments: Sequence[str]) -> Call:
    """Return the invocation. A missing file is not an error: it may be why the invocation failed."""
    subcommand = _RUN if tuple(arguments[:1]) == (_RUN,) else ""
    call = Call(subcommand)
    folders: list[str] = []
    libraries: list[str] = []
    rest = list(reversed(arguments[1:] if subcommand else arguments))
    while rest:
        word = rest.pop()
        if word == "--":
            behind = reversed(rest)
            call.arguments += ["--", *(behind if subcommand else map(call.reads, behind))]
            break
        if not word.startswith("-"):
            call.arguments.append(call.reads(word))
            continue
        option = _split(word, rest)
        if option.path == "folder":
            folders.append(option.value)
        elif option.path == "library":
            libraries.append(option.value)
        _rewrite(call, option)
    for path in (*_libraries(folders, libraries), *_headers(call, folders)):
        call.files[moved(str(path))] = path
    return call


class _Given(Struct, frozen=True):
    """An option as spelled on the command line. `path` says which kind of file its value names."""

    path: str
    name: str
    value: str = ""
    is_separate: bool = False


def _rewrite(call: Call, option: _Given) -> None:
    value = option.value
    if option.path == "tool" and "/" in value:
        call.left_out.append(f"{option.name}{value}")
        return
    note = {
        "input": call.reads,
        "output": call.writes,
        "folder": call.looks_into,
        "pipeline": call.reads_pipeline,
        "keyed": call.reads_keyed,
    }.get(option.path)
    if note is not None and value:
        value = note(value)
    call.arguments += [option.name, value] if option.is_separate else [option.name + value]


def _split(word: str, rest: list[str]) -> _Given:
    """Return an option and its value, which may be the next word of `rest`."""
    found = COMPILER.find(word)
    if found is None:
        return _Given("", word)
    row, name = found
    if COMPILER.takes_next(word) and rest:
        return _Given(row.path, word, rest.pop(), is_separate=True)
    return _Given(row.path, name, word[len(name) :])


def _libraries(folders: Sequence[str], names: Sequence[str]) -> Iterator[Path]:
    for folder in folders:
        for name in names:
            yield from (Path(folder, f"lib{name}{end}") for end in (".so", ".a"))


def _headers(call: Call, folders: Sequence[str]) -> Iterator[Path]:
    """Yield the headers that sources include, directly or indirectly, from the user's directories.

    Preprocessor conditions are ignored: an unnecessary header does no harm.
    """
    pending = [path for path in call.files.values() if path.suffix in _PREPROCESSED]
    seen = set(pending)
    while pending and len(seen) < _MOST_HEADERS:
        file = pending.pop()
        for name in _included(file):
            for folder in (file.parent, *map(Path, folders)):
                header = folder / name
                if header not in seen and header.is_file():
                    seen.add(header)
                    pending.append(header)
                    yield header


def _included(file: Path) -> list[str]:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_HEADER_BYTES)
    except OSError:
        return []
    return [os.fsdecode(name) for name in _INCLUDE.findall(content)]
