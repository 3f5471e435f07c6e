"""The build log of a project, next to the outputs; it remains valid if a build is killed at any time.

A step is recorded after its outputs, in one line that is written with one call. Steps without a record are
rebuilt; an incomplete line is ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.project.planned_step import ProjectStep
from mlir_offload.driver.project.stamp import FileStamps, Stamp
from mlir_offload.driver.system.depfile import read_prerequisites
from mlir_offload.driver.system.workspace import make_directory, replace_file
from mlir_offload.toolchain.byte_view import write_all
from mlir_offload.toolchain.errors import InputOutputError

_JOURNAL, _LOCK = ".mlir-offload-state", ".mlir-offload-lock"
_FORMAT = "mlir-offload state 3"
# The log is compacted if most of its lines are superseded by later ones.
_MOST_LINES_PER_STEP = 3


class StepRecord(Struct, frozen=True):
    """A completed step: its signature, and the state of its files.

    `found` are all files that a search for these files finds by name: a new one may take precedence.
    """

    signature: str
    files: dict[str, Stamp]
    found: frozenset[str] = frozenset()


class ProjectState(Struct):
    """The records of a build directory, the state of its files, and the descriptor of its lock."""

    directory: Path
    stamps: FileStamps
    lock: int = -1
    _records: dict[str, StepRecord] = field(default_factory=dict)
    _renewed: list[str] = field(default_factory=list)
    _lines: int = 0

    def load(self) -> None:
        """Read the log; invalid lines are ignored."""
        try:
            text = (self.directory / _JOURNAL).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return
        lines = text.split("\n")
        if lines[0] != _FORMAT:
            return
        for line in lines[1:]:
            self._lines += 1
            found = _parse(line)
            if found is not None:
                self._records[found[0]] = found[1]

    def knows(self, step: ProjectStep) -> bool:
        """Return whether the step was done before with these arguments and tools."""
        record = self._records.get(str(step.action.outputs[0]))
        return record is not None and record.signature == step.action.signature

    def is_current(self, step: ProjectStep) -> bool:
        """Return whether the outputs of a step are up to date."""
        record = self._records.get(str(step.action.outputs[0]))
        if record is None or record.signature != step.action.signature:
            return False
        if not all(self.stamps.equals(path, stamp) for path, stamp in record.files.items()):
            return False
        if not record.found.issuperset(self._found(step, record.files)):
            return False
        if any(
            stamp.changed_ns != self.stamps.changed_ns(path) for path, stamp in record.files.items()
        ):
            self._renew(step, record)
        return True

    def made(self) -> set[str]:
        """Return the recorded files in the build directory, which steps made."""
        folder = f"{self.directory.relative_to(self.stamps.root)}/"
        paths = (path for record in self._records.values() for path in record.files)
        return {path for path in paths if path.startswith(folder)}

    def drop(self, paths: Iterable[str]) -> None:
        """Remove the records of the steps that made these files."""
        gone = set(paths)
        self._records = {name: one for name, one in self._records.items() if name not in gone}
        self._write_anew()

    def settled(self, steps: Iterable[ProjectStep]) -> dict[str, tuple[int, int]] | None:
        """Return change time (ns) and size of all files of current steps; None if a time is too recent."""
        files: dict[str, tuple[int, int]] = {}
        for step in steps:
            record = self._records[str(step.action.outputs[0])]
            for path, stamp in record.files.items():
                if stamp.changed_ns != self.stamps.changed_ns(path):
                    return None
                files[path] = (stamp.changed_ns, stamp.size_bytes)
            searches = self._searches(step, record.files)
            for place in {place for one in searches for place in self.stamps.places(*one)}:
                status = self.stamps.folder(place)
                if status is None:
                    return None
                files[place] = status
        return files

    def _found(self, step: ProjectStep, paths: Iterable[str]) -> frozenset[str]:
        """Return the files that a search for these files finds."""
        searches = self._searches(step, paths)
        return frozenset(name for search in searches for name in self.stamps.found_in(*search))

    def _searches(self, step: ProjectStep, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the searches that may find other files of a step: pairs of a directory and a file.

        `#include "..."` searches the directory of the including file first.
        """
        if not step.action.folders:
            return
        made = f"{self.directory.relative_to(self.stamps.root)}/"
        read = [path for path in paths if PurePosixPath(path) not in step.action.written]
        own = (path for path in read if not path.startswith(("/", made)))
        folders = dict.fromkeys((*map(str, step.action.folders), *map(os.path.dirname, own)))
        yield from ((folder or ".", path) for folder in folders for path in read)

    def _renew(self, step: ProjectStep, record: StepRecord) -> None:
        """Record new change times of files whose content is unchanged, to avoid hashing them again."""
        found = {path: self.stamps.find(path) or stamp for path, stamp in record.files.items()}
        if found != record.files:
            name = str(step.action.outputs[0])
            self._records[name] = replace(record, files=found)
            self._renewed.append(_render(name, self._records[name]) + "\n")

    def close(self) -> None:
        """Write the renewed records."""
        if self._renewed:
            self._append("".join(self._renewed))
            self._renewed.clear()

    def inputs(self, step: ProjectStep) -> dict[str, Stamp | None]:
        """Return the state of the inputs of a step before it runs."""
        return {str(path): self.stamps.find(str(path)) for path in step.action.inputs}

    def record(self, step: ProjectStep, inputs: dict[str, Stamp | None], started_ns: int) -> None:
        """Record a completed step, unless a file that it read changed meanwhile."""
        found = {**inputs}
        self.stamps.forget(step.action.written)
        for path in map(str, step.action.written):
            found[path] = self.stamps.find(path)
        noted = self._noted(step)
        if noted is None:
            return
        for path in noted:
            if path not in found:
                found[path] = self._read_by(path, started_ns)
        files = {path: stamp for path, stamp in found.items() if stamp is not None}
        if len(files) != len(found):
            return
        others = self._found(step, files)
        if any(self.stamps.changed_ns(path) >= started_ns for path in others - found.keys()):
            return
        name, record = str(step.action.outputs[0]), StepRecord(step.action.signature, files, others)
        self._records[name] = record
        self._append(_render(name, record) + "\n")

    def _noted(self, step: ProjectStep) -> list[str] | None:
        """Return the files in the step's dependency file; None if it did not write one."""
        if step.action.depfile is None:
            return []
        try:
            place = self.stamps.root / step.action.depfile
            text = place.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
        return list(read_prerequisites(text))

    def _read_by(self, path: str, started_ns: int) -> Stamp | None:
        """Return the stamp of a file that a step has read; None if it changed since the step started."""
        status = self.stamps._stat(path)  # noqa: SLF001 (of this module)
        return (
            None if status is None or status.st_ctime_ns >= started_ns else self.stamps.find(path)
        )

    def _append(self, text: str) -> None:
        journal = self.directory / _JOURNAL
        try:
            if self._lines == 0:
                replace_file(journal, f"{_FORMAT}\n")
            descriptor = os.open(journal, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # If a build was killed, the last line may be incomplete.
                size = os.fstat(descriptor).st_size
                ends = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
                line = text if ends else f"\n{text}"
                write_all(line.encode("utf-8", "surrogateescape"), descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _not_written(journal, error) from error
        self._lines += 1

    def compact(self) -> None:
        """Rewrite the log if most of its lines are superseded."""
        if self._lines <= _MOST_LINES_PER_STEP * max(len(self._records), 100):
            return
        self._write_anew()

    def _write_anew(self) -> None:
        lines = [_FORMAT, *(_render(name, record) for name, record in self._records.items())]
        journal = self.directory / _JOURNAL
        try:
            replace_file(journal, "\n".join(lines) + "\n")
        except OSError as error:
            raise _not_written(journal, error) from error


def _not_written(path: Path, error: OSError) -> InputOutputError:
    msg = f"cannot write {path}: {error.strerror}"
    return InputOutputError(msg, hint="free some space, or choose another 'directory'")


def is_locked(directory: Path) -> bool:
    """Return whether a build is running in a build directory. Raises OSError if there was none yet."""
    import fcntl

    with (directory / _LOCK).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def open_state(root: Path, directory: Path) -> Iterator[ProjectState]:
    """Yield the state of a build directory, locked for one build at a time."""
    import fcntl

    make_directory(directory)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(directory / _LOCK, flags, 0o666)
    except OSError as error:
        raise _not_written(directory / _LOCK, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            show_note(f"waiting for another build in {directory}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        state = ProjectState(directory, FileStamps(root), descriptor)
        state.load()
        state.compact()
        yield state
        state.close()
    finally:
        os.close(descriptor)


def _render(name: str, record: StepRecord) -> str:
    files = {
        path: [stamp.changed_ns, stamp.size_bytes, stamp.digest]
        for path, stamp in record.files.items()
    }
    return json.dumps([name, record.signature, files, sorted(record.found)])


def _parse(line: str) -> tuple[str, StepRecord] | None:
    try:
        row: Any = json.loads(line)
        name, signature, rows, found = row
        files = {path: Stamp(*stamp) for path, stamp in rows.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    is_text = isinstance(name, str) and isinstance(signature, str)
    return (name, StepRecord(signature, files, frozenset(found))) if is_text else None
