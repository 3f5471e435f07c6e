"""What is known of the files of tools: whether they are replaced while a build runs, and their last version."""

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
    """A file of a toolchain, by its name and its content; `path` is where it lies here."""

    name: str
    content: str
    path: Path | None = None

    def __eq__(self, other: object) -> bool:
        """Compare name and content: the same file may lie elsewhere on another machine."""
        if not isinstance(other, FileIdentity):
            return NotImplemented
        return self.name == other.name and self.content == other.content

    def __hash__(self) -> int:
        """Hash name and content."""
        return hash((self.name, self.content))


class ToolWatch(Struct):
    """The files of tools as they were when they were found."""

    _stamps: dict[str, str] = field(default_factory=dict)

    def add(self, files: Iterable[FileIdentity]) -> None:
        """Remember these files as they are now."""
        self.add_paths(str(file.path) for file in files if file.path is not None)

    def add_paths(self, paths: Iterable[str]) -> None:
        """Remember the files at these places as they are now."""
        for path in paths:
            if path not in self._stamps:
                self._stamps[path] = _stamp_at(path)

    def check(self) -> None:
        """Raise CompatibilityError where a tool is not the file any more that was found."""
        for path, stamp in self._stamps.items():
            if _stamp_at(path) != stamp:
                msg = f"{path} was replaced during the build"
                hint = "run the build again: it compiles what the new tools take part in"
                raise CompatibilityError(msg, hint=hint)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check when the work is done, and where it fails, which may be a consequence."""
        try:
            yield
        except MlirOffloadError:
            self.check()
            raise
        self.check()


def tool_files(
    llvm: LlvmToolchain, cuda: CudaToolkit | None, rocm: RocmInstallation | None = None
) -> Iterator[str]:
    """Yield the programs of a toolchain and the libraries of LLVM's release, without opening any.

    An upgrade replaces them one by one; the code of clang and mlir-opt lies in the libraries.
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
    """Return what differs when a file is another one, or was written, but not when it gets a link.

    `perf record` makes hard links of the programs that run, and so do sandboxes and backups.
    """
    return f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def file_stamp(status: os.stat_result) -> str:
    """Return what differs when anything about a file has changed.

    The time of the last change of any kind cannot be set back, as that of the content can.
    """
    return f"{_content_stamp(status)}-{status.st_ctime_ns}"


_ELF = b"\x7fELF"
# What has just been written may be written again within the same tick of the clock.
_SETTLED_NS = 2_000_000_000


def program_stamp(program: Path) -> str:
    """Return what differs when a program or a library that it may load is another; empty if unknown.

    An upgrade replaces libraries by files of the same names: the directories change then. What a
    script runs is unknown, and so is a program that has just been written.
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
    newest = max(status.st_ctime_ns for status in (own, *found))
    if abs(time.time_ns() - newest) < _SETTLED_NS:
        return ""
    return " ".join((path, *(file_stamp(status) for status in (own, *found))))


def _places(program: Path, library_path: str) -> Iterator[str]:
    """Yield the directories of a program, and those of libraries."""
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
    """Return a runner that remembers versions of real programs; recorded ones are asked each time."""
    return _KnownVersions(runner) if isinstance(runner, ProcessRunner) else runner


class _KnownVersions(Struct, frozen=True):
    runner: Runner

    def run(self, command: Command, *, input_text: str | None = None) -> Completed:
        """Run the command, or return what it printed before: `--version` of an unchanged program."""
        program, *rest = command.argv
        stamp = program_stamp(Path(program)) if rest == ["--version"] else ""
        if not stamp:
            return self.runner.run(command, input_text=input_text)
        # One file for each program, its first line the stamp: no call waits for a reader of JSON.
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
    # A name that is too long for a file is not kept.
    return user_cache(os.environ) / "versions" / program.replace("/", "!")
