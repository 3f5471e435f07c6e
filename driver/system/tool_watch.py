"""Detect changes of the files of tools during a build, and cache the output of `--version`."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from mlir_offload.driver.system.workspace import replace_file, user_cache
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError
from mlir_offload.toolchain.pattern import compiled
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner, Runner

if TYPE_CHECKING:
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.llvm import LlvmToolchain
    from mlir_offload.toolchain.rocm import RocmInstallation

LIBRARY_PLACES = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/local/lib",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
)


class FileIdentity(Struct, frozen=True, eq=False):
    """A file of a toolchain, identified by name and content. `path` is its path on this host."""

    name: str
    content: str
    path: Path | None = None

    def __eq__(self, other: object) -> bool:
        """Compare name and content, because the same file may have another path on another host."""
        if not isinstance(other, FileIdentity):
            return NotImplemented
        return self.name == other.name and self.content == other.content

    def __hash__(self) -> int:
        """Hash name and content."""
        return hash((self.name, self.content))


class ToolWatch(Struct):
    """The stamps of tool files at the time when the tools were found."""

    _stamps: dict[str, str] = field(default_factory=dict)

    def add(self, files: Iterable[FileIdentity]) -> None:
        """Record the stamps of these files."""
        self.add_paths(str(file.path) for file in files if file.path is not None)

    def add_paths(self, paths: Iterable[str]) -> None:
        """Record the stamps of the files with these paths."""
        for path in paths:
            if path not in self._stamps:
                self._stamps[path] = _stamp_at(path)

    def check(self) -> None:
        """Raise CompatibilityError if a file of a tool has changed."""
        for path, stamp in self._stamps.items():
            if _stamp_at(path) != stamp:
                msg = f"{path} was replaced during the build"
                hint = "run the build again: it compiles what the new tools take part in"
                raise CompatibilityError(msg, hint=hint)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check at the end of the block, also after an error, which may be a consequence of a change."""
        try:
            yield
        except MlirOffloadError:
            self.check()
            raise
        self.check()


def tool_files(
    llvm: LlvmToolchain, cuda: CudaToolkit | None, rocm: RocmInstallation | None = None
) -> Iterator[str]:
    """Yield the programs of a toolchain and the libraries of its LLVM release, without opening any.

    The libraries contain the code of clang and mlir-opt, and an upgrade replaces files one by one.
    """
    yield from (str(path) for _, path in llvm.tools)
    if cuda is not None:
        yield from (str(path) for _, path in cuda.installation.parts)
    if rocm is not None and rocm.bitcode is not None:
        yield from map(str, rocm.bitcode.glob("*.bc"))
    name = rf"^lib(?:LLVM|MLIR|clang|lld|LTO|Polly).*[-.]{llvm.version.major}(?!\d).*$"
    own = compiled(name, re.MULTILINE)
    places = (str(llvm.prefix / "lib"), *LIBRARY_PLACES)
    for place in dict.fromkeys(os.path.realpath(place) for place in places):
        with contextlib.suppress(OSError):
            names = os.listdir(place)  # noqa: PTH208 (thousands of names, of which few are kept)
            yield from (f"{place}/{name}" for name in own.findall("\n".join(names)))


def _stamp_at(path: str) -> str:
    status = _status(path)
    return "" if status is None else _content_stamp(status)


def _content_stamp(status: os.stat_result) -> str:
    """Return a stamp of a file's identity and content, which does not change if it gets a hard link.

    `perf record`, sandboxes and backups create hard links of programs.
    """
    return f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def file_stamp(status: os.stat_result) -> str:
    """Return a stamp that changes with any change of a file.

    It includes st_ctime, which cannot be set back, unlike the modification time.
    """
    return f"{_content_stamp(status)}-{status.st_ctime_ns}"


_ELF = b"\x7fELF"
# A file that was written within this time may change again without a new time stamp.
_SETTLED_NS = 2_000_000_000


def is_settled(files: Iterable[os.stat_result]) -> bool:
    """Return whether stamps of files are reliable, because no file was written recently."""
    newest = max(status.st_ctime_ns for status in files)
    return abs(time.time_ns() - newest) >= _SETTLED_NS


def program_stamp(program: Path) -> str:
    """Return a stamp of a program and the directories of its libraries; empty if it is not reliable.

    An upgrade replaces libraries by files of the same names, which changes their directories. There is no
    stamp for scripts, whose programs are unknown, and for files that were written recently.
    """
    try:
        with program.open("rb") as stream:
            if stream.read(len(_ELF)) != _ELF:
                return ""
        own = program.stat()
    except OSError:
        return ""
    path = os.environ.get("LD_LIBRARY_PATH", "")
    found = [status for place in _places(program, path) if (status := _status(place)) is not None]
    if not is_settled((own, *found)):
        return ""
    return " ".join((path, *(file_stamp(status) for status in (own, *found))))


def _places(program: Path, library_path: str) -> Iterator[str]:
    """Yield the directories of a program and of its libraries."""
    for folder in dict.fromkeys((str(program.parent), os.path.dirname(os.path.realpath(program)))):  # noqa: PTH120
        yield folder
        yield f"{folder}/../lib"
    yield from LIBRARY_PLACES
    yield from (place for place in library_path.split(":") if place)


def _status(place: str) -> os.stat_result | None:
    try:
        return os.stat(place)  # noqa: PTH116 (a dozen for each program, and all files of tools twice)
    except OSError:
        return None


def knowing_versions(runner: Runner) -> Runner:
    """Return a runner that caches versions of programs; in tests with recorded programs, `runner` itself."""
    return _KnownVersions(runner) if isinstance(runner, ProcessRunner) else runner


class _KnownVersions(Struct, frozen=True):
    runner: Runner

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command; return the cached output of `--version` of an unchanged program."""
        program, *rest = command.argv
        stamp = program_stamp(Path(program)) if rest == ["--version"] else ""
        if not stamp:
            return self.runner.run(command, input_text=input_text)
        # One text file per program, with the stamp in its first line, because importing json takes time.
        file, head = _file(program), f"{program} {stamp}\n"
        with contextlib.suppress(OSError, ValueError):
            known = file.read_text(encoding="utf-8")
            if known.startswith(head):
                return Completed(command, 0, known.removeprefix(head), "")
        completed = self.runner.run(command, input_text=input_text)
        if completed.returncode == 0:
            with contextlib.suppress(OSError, ValueError):
                replace_file(file, head + completed.stdout)
        return completed


def _file(program: str) -> Path:
    # If the name is too long for a file, the output is not cached.
    return user_cache(os.environ) / "versions" / program.replace("/", "!")
