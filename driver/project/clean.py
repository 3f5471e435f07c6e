"""Remove the outputs of builds: all of them, or those that the manifest no longer contains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from mlir_offload.driver.project.file import Project
from mlir_offload.driver.project.graph import ProjectGraph
from mlir_offload.driver.project.state import ProjectState

_Choice = Callable[[PurePosixPath], bool]


def clean_project(project: Project, state: ProjectState, variants: Collection[str]) -> int:
    """Remove the outputs of these variants, by default of all; return the number of files."""
    folders = [project.directory / variant for variant in variants] or [project.directory]
    return _remove(project, state, lambda path: any(map(path.is_relative_to, folders)))


def prune_project(graph: ProjectGraph, state: ProjectState) -> int:
    """Remove the outputs of steps that are no longer in the manifest; return the number of files."""
    kept = {
        path
        for step in graph.steps
        for path in (*step.action.outputs, *((step.action.depfile,) if step.action.depfile else ()))
    }
    return _remove(graph.project, state, lambda path: path not in kept)


def _remove(project: Project, state: ProjectState, is_doomed: _Choice) -> int:
    doomed = {path for path in map(PurePosixPath, state.made()) if is_doomed(path)}
    removed = 0
    for path in _inside(project, doomed):
        with suppress(OSError):
            path.unlink()
            removed += 1
        for parent in path.parents:
            if parent == project.root / project.directory:
                break
            with suppress(OSError):
                # Fails if the directory contains other files.
                parent.rmdir()
    state.drop(map(str, doomed))
    return removed


def _inside(project: Project, paths: Collection[PurePosixPath]) -> Iterator[Path]:
    """Yield the files inside the build directory: the records of an untrusted project may name others."""
    directory = (project.root / project.directory).resolve()
    for path in paths:
        place = project.root / path
        if place.parent.resolve().is_relative_to(directory) and ".." not in path.parts:
            yield place
