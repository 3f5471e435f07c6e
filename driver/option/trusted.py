"""Trust for project settings that choose programs, granted by `mlir-offload trust`.

A project may come from anyone. Settings that name a program, a launcher or a plugin are used only if the user
trusts the file. Trust is bound to path and content, so that a changed file has to be trusted again.
The records are in the user's state directory (XDG Base Directory), outside of the project.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.option.compile_options import ANY_CLANG
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.driver.system.workspace import replace_file
from mlir_offload.toolchain.errors import InputOutputError, UsageError

# Options of clang and other tools that name a program, a plugin, or an output file.
_PROGRAM = re.compile(
    r"""--(?:remote|ld-path|gcc-toolchain|gcc-install-dir|sysroot)\b | -(?:B|isysroot|specs) | --specs
    | (?!-l).*plugin | .*-load\b | -Xclang | -Wl,(?:.*,)?@ | -Xlinker[ ]@""",
    re.VERBOSE | re.DOTALL,
)
_RUN_PATH = re.compile(r"-Wl,-rpath[,=][^,]*", re.DOTALL)


def program_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags, each with its value, that name a program, a plugin, or an output file of a tool."""
    return tuple(flag for flag in flags if _names_program(flag))


def _names_program(flag: str) -> bool:
    if _PROGRAM.match(flag) is not None:
        return True
    found = COMPILER.find(flag) if flag.startswith("-") else None
    if found is None:
        # Many clang options without a row name an output file.
        return flag.startswith("-") and "/" in flag
    row, name = found
    value = flag.removeprefix(name)
    return {
        "always": True,
        # A release selects an installed toolchain; any other value is a path.
        "place": not (value == ANY_CLANG or (value.isascii() and value.isdecimal())),
        # An output file may be anywhere.
        "path": "/" in value and _RUN_PATH.fullmatch(flag) is None,
    }.get(row.program, False)


class TrustStore(Struct, frozen=True):
    """The files that this user trusts; without a directory, none."""

    directory: Path | None

    def is_trusted(self, file: Path, content: bytes) -> bool:
        """Return whether the user has trusted this file with this content."""
        if self.directory is None:
            return False
        return bool(self._read(self._record(file)).get("sha256") == _digest(content))

    def add(self, file: Path, content: bytes) -> None:
        """Trust a file. Raises InputOutputError if the record cannot be written."""
        if self.directory is None:
            msg = "there is no directory for the list of trusted files"
            raise InputOutputError(msg, hint="set HOME or XDG_STATE_HOME")
        record = {"path": os.path.realpath(file), "sha256": _digest(content)}
        try:
            replace_file(self._record(file), json.dumps(record))
        except OSError as error:
            msg = f"cannot write to {self.directory}: {error.strerror}"
            raise InputOutputError(msg, hint="check its permissions") from error

    def remove(self, file: Path) -> bool:
        """Revoke trust in a file; return whether it was trusted."""
        if self.directory is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            self._record(file).unlink()
            return True
        return False

    def records(self) -> Iterator[tuple[Path, str]]:
        """Yield the trusted files with the digest of their content, sorted by path."""
        files = self.directory.glob("*.json") if self.directory is not None else ()
        read = [self._read(file) for file in files]
        for record in sorted(read, key=lambda record: record.get("path", "")):
            if record.keys() >= {"path", "sha256"}:
                yield Path(record["path"]), record["sha256"]

    def _record(self, file: Path) -> Path:
        name = hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()
        return Path(self.directory or os.devnull, f"{name}.json")

    @staticmethod
    def _read(record: Path) -> dict[str, str]:
        try:
            found = json.loads(record.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {key: value for key, value in found.items() if isinstance(value, str)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def trust_store(environment: Mapping[str, str]) -> TrustStore:
    """Return the trust store of this user."""
    root = environment.get("XDG_STATE_HOME", "")
    if not root.startswith("/"):
        home = environment.get("HOME", "")
        root = f"{home}/.local/state" if home.startswith("/") else ""
    return TrustStore(Path(root, "mlir-offload", "trusted") if root else None)


def check_trusted(
    file: Path, content: bytes, flags: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Raise UsageError if the flags of a project's file name programs and the file is not trusted."""
    named = program_flags(flags)
    if named and not trust_store(environment).is_trusted(file, content):
        msg = f"'{named[0]}' chooses programs, but this file is not trusted"
        trust = shlex.join(("mlir-offload", "trust", str(file)))
        hint = f"read the file and run '{trust}', or name the program on the command line"
        raise UsageError(msg, hint=hint, location=str(file))
