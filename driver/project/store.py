"""A store of step results that builds and hosts share, keyed by the inputs, and verified when read.

A result refers to each file by hash; a file is stored under the hash of its content. Damaged entries are
ignored, and written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath

from msgspec import Struct

from mlir_offload.driver.project.engine import LocalEngine
from mlir_offload.driver.project.planned_step import DECLARED, ProjectStep
from mlir_offload.driver.project.run import StepEnd
from mlir_offload.driver.step.action import Action
from mlir_offload.driver.system.workspace import make_directory, publish
from mlir_offload.toolchain.errors import InputOutputError

_RESULTS, _FILES = "results", "files"


class StoringEngine(Struct, frozen=True):
    """Takes results from the store, or runs steps by `local` and stores the result if the tools are unchanged."""

    local: LocalEngine
    store: ResultStore
    check_tools: Callable[[], None]

    @property
    def lanes(self) -> int:
        """Return the number of steps to run concurrently."""
        return self.local.lanes

    @property
    def splits_modules(self) -> bool:
        """Return whether the steps of a module run separately."""
        return self.local.splits_modules

    def cancel(self) -> None:
        """Cancel like `local`."""
        self.local.cancel()

    def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
        """Take the result of a step from the store, or run the step and store its result."""
        if step.kind not in DECLARED:
            return self.local.run(step, jobs)
        root, files = self.local.root, _files(step.action)
        key = _key(step.action, root)
        said = self.store.take(key, files, root)
        if said is not None:
            return StepEnd(0, said)
        end = self.local.run(step, jobs)
        # Inputs that were edited meanwhile may have been read before or after the change.
        if end.exit_status == 0 and _key(step.action, root) == key:
            self.check_tools()
            self.store.add(key, files, root, end.message)
        return end


def _files(action: Action) -> tuple[PurePosixPath, ...]:
    return (*action.outputs, *((action.depfile,) if action.depfile else ()))


def _key(action: Action, root: Path) -> str:
    return action.key([_digest(root / path) for path in action.reads])


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


class ResultStore(Struct, frozen=True):
    """A directory that builds share. Files are written under a temporary name and renamed."""

    directory: Path

    def take(self, key: str, files: Sequence[PurePosixPath], root: Path) -> str | None:
        """Copy the files of a result to their paths; return the step's output, None if the store lacks it."""
        result = self._place(_RESULTS, key)
        try:
            digests, said = _parse(result.read_text(encoding="utf-8"), len(files))
        except (OSError, ValueError):
            result.unlink(missing_ok=True)
            return None
        places = [self._place(_FILES, digest) for digest in digests]
        if any(map(_is_damaged, places)):
            return None
        for place, file in zip(places, files, strict=True):
            make_directory(root / file.parent)
            publish(place, root / file)
        return said

    def add(self, key: str, files: Sequence[PurePosixPath], root: Path, said: str) -> None:
        """Store a result. Raises InputOutputError if the directory is not writable."""
        digests = [_digest(root / file) for file in files]
        for digest, file in zip(digests, files, strict=True):
            place = self._place(_FILES, digest)
            if _is_damaged(place):
                self._write(place, partial(shutil.copyfile, root / file))
        text = json.dumps([digests, said])
        line = f"{hashlib.sha256(text.encode()).hexdigest()} {text}"
        self._write(self._place(_RESULTS, key), partial(_write_text, line))

    def _place(self, folder: str, name: str) -> Path:
        return self.directory / folder / name[:2] / name

    @staticmethod
    def _write(place: Path, write: Callable[[Path], object]) -> None:
        # Hosts that share the directory may have processes with equal IDs.
        writer = f"{os.uname().nodename}.{os.getpid()}.{threading.get_ident()}"
        part = place.with_name(f".{place.name}.{writer}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write(part)
            part.replace(place)
        except OSError as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            msg = f"cannot write {place}: {error.strerror}"
            raise InputOutputError(msg, hint="name a directory that can be written") from error


def _is_damaged(place: Path) -> bool:
    """Return whether a file is missing or does not match the hash in its name."""
    return _digest(place) != place.name


def _write_text(text: str, place: Path) -> None:
    place.write_text(text, encoding="utf-8")


def _parse(line: str, count: int) -> tuple[list[str], str]:
    """Return the digests and the output of a result. Raises ValueError for a damaged one."""
    digest, _, text = line.partition(" ")
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise ValueError(digest)
    digests, said = json.loads(text)
    if len(digests) != count:
        raise ValueError(count)
    return digests, said
