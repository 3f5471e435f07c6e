"""A snapshot of a build with nothing to do, so that the next build can skip planning if nothing changed.

The snapshot is written after a build in which every step was current. It is valid for the same
environment, settings, tools and patterns, while no file changes its size or change time. It is in the user's
cache, because it names tools and a project may come from anyone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.project.file import directory_in, matching
from mlir_offload.driver.project.graph import ProjectGraph
from mlir_offload.driver.project.state import ProjectState, is_locked
from mlir_offload.driver.project.tools import ToolFinder
from mlir_offload.driver.system.workspace import replace_file, user_cache
from mlir_offload.toolchain.errors import MlirOffloadError

_FORMAT = "mlir-offload snapshot 1"
# Variables that differ from shell to shell and do not affect a build.
_VOLATILE = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})


class Asked(Struct, frozen=True):
    """The request of a build: its manifest, variants and environment."""

    manifest: str
    variants: tuple[str, ...]
    environment: Mapping[str, str]

    def key(self, tools: ToolFinder) -> str:
        """Return a hash of everything that determines the plan, except files."""
        environment = sorted(
            (name, value) for name, value in self.environment.items() if name not in _VOLATILE
        )
        settings = [(str(file.path), sorted(file.values.items())) for file in tools.settings]
        text = json.dumps([self.manifest, self.variants, environment, settings])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def write_snapshot(
    asked: Asked, tools: ToolFinder, graph: ProjectGraph, state: ProjectState
) -> None:
    """Write the snapshot of a build that had nothing to do.

    Nothing is written if the change time of a file is too recent to be reliable; then the next build only
    takes longer.
    """
    files = state.settled(graph.steps)
    manifest = state.stamps.find(asked.manifest)
    if files is None or manifest is None or manifest.changed_ns < 0:
        return
    files[asked.manifest] = (manifest.changed_ns, manifest.size_bytes)
    found = [(pattern, matching(pattern)) for pattern in graph.project.patterns]
    head = [_FORMAT, asked.key(tools), len(graph.steps), found, tools.described()]
    lines = (f"{changed} {size} {path}" for path, (changed, size) in files.items())
    with suppress(OSError, UnicodeError):
        replace_file(_place(asked), "\n".join((json.dumps(head), *lines)))


def count_current(asked: Asked, tools: ToolFinder) -> int | None:
    """Return the number of current steps; None if a plan is needed. Runs in the manifest's directory."""
    try:
        directory = directory_in(Path(asked.manifest))
        head, *lines = _place(asked).read_text(encoding="utf-8").split("\n")
        form, key, steps, found, described = json.loads(head)
        if form != _FORMAT or key != asked.key(tools) or is_locked(directory):
            return None
        if any(matching(pattern) != names for pattern, names in found):
            return None
        if not all(_are_as_they_were(lines)) or not tools.is_as(described):
            return None
    except (OSError, ValueError, TypeError, MlirOffloadError):
        return None
    return int(steps)


def _place(asked: Asked) -> Path:
    manifest = os.fsencode(Path(asked.manifest).absolute())
    return user_cache(asked.environment) / "snapshots" / hashlib.sha256(manifest).hexdigest()


def _are_as_they_were(lines: Sequence[str]) -> Iterator[bool]:
    for line in lines:
        changed, size, path = line.split(" ", 2)
        status = os.stat(path)  # noqa: PTH116 (of tens of thousands)
        yield status.st_ctime_ns == int(changed) and status.st_size == int(size)
