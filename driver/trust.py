"""Trust the settings of a project, so that they may choose programs."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from mlir_offload.driver.message.escape import shown
from mlir_offload.driver.option.click_command import PATH, command
from mlir_offload.driver.option.config import project_file
from mlir_offload.driver.option.trusted import TrustStore, trust_store
from mlir_offload.toolchain.errors import InputOutputError, UsageError

_MANIFEST = "offload.yaml"


@command("trust", click.Argument(["places"], nargs=-1, type=PATH))
def trust(places: tuple[Path, ...], *, only_list: bool, revoke: bool) -> int:
    """Let the settings of projects choose programs, until their files change.

    PLACES are directories (default: the current one) or files. For a directory, the trusted files are the
    mlir-offload.toml that applies there, and offload.yaml.
    """
    store = trust_store(os.environ)
    if only_list:
        _print(_listed(store))
        return 0
    files = [file for place in places or (Path(),) for file in _files(place, revoke=revoke)]
    for file in files:
        if revoke:
            _print([f"{'no longer' if store.remove(file) else 'not'} trusted: {_name(file)}"])
        else:
            store.add(file, _content(file))
            _print([f"trusted: {_name(file)}"])
    return 0


def _files(place: Path, *, revoke: bool) -> list[Path]:
    """Return the settings files of a directory, or the file itself. Raises UsageError if there are none."""
    if not place.is_dir():
        # Also a file that no longer exists, so that its trust can be revoked.
        return [place]
    found = project_file(Path(os.path.realpath(place)))
    manifest = place / _MANIFEST
    files = [*([found] if found else []), *([manifest] if manifest.is_file() or revoke else [])]
    if not files:
        msg = f"{place} has neither mlir-offload.toml nor {_MANIFEST}"
        raise UsageError(msg, hint="name the directory of the project, or a file of settings")
    return files


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise InputOutputError(msg, hint="name a directory or a file of settings") from error


def _listed(store: TrustStore) -> Iterator[str]:
    for path, digest in store.records():
        try:
            same = hashlib.sha256(path.read_bytes()).hexdigest() == digest
            state = "" if same else "  (changed: not trusted)"
        except OSError:
            state = "  (not there)"
        yield f"{_name(path)}{state}"


def _name(path: Path) -> str:
    return shown(os.path.realpath(path))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
