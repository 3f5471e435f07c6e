"""A directory that machines share, in which a file's name tells what it holds or what it came of."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlir_offload.toolchain.errors import InputOutputError

_DIGITS = 64
_FORMAT = "mlir-offload store 1"


@dataclass(frozen=True, slots=True)
class StepStore:
    """Files by key. Each is written beside its place and renamed: it is whole, or not there."""

    directory: Path

    def place(self, key: str) -> Path:
        """Return where the file of a key is, if it is there."""
        return self.directory / key[:2] / key

    def has(self, key: str) -> bool:
        """Say whether the file is there."""
        return self.place(key).is_file()

    def add_content(self, file: Path) -> str:
        """Put a file under the hash of its content, and return that."""
        try:
            with file.open("rb") as stream:
                key = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            msg = f"cannot read {file}: {error.strerror}"
            raise InputOutputError(msg, hint="run the build again") from error
        if not self.has(key):
            self.add(key, file)
        return key

    def add(self, key: str, file: Path) -> None:
        """Put a file under a key. Raises InputOutputError; nothing is left behind then."""
        place = self.place(key)
        # Machines that share the directory may have processes of one number; threads put equal files.
        writer = f"{os.uname().nodename}.{os.getpid()}.{threading.get_ident()}"
        part = place.with_name(f".{key}.{writer}.tmp")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(file, part)
                part.replace(place)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            msg = f"cannot write {place}: {error.strerror}"
            hint = "the store must be writable on this machine and on every worker"
            raise InputOutputError(msg, hint=hint) from error


def step_key(toolchain_id: str, arguments: Sequence[str], inputs: Sequence[str]) -> str:
    """Return the key of what a step makes: of its tools, its arguments and its inputs' content."""
    text = json.dumps([_FORMAT, toolchain_id, list(arguments), list(inputs)])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
