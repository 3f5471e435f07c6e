"""Remove what builds have made: all of it, or what the manifest no longer names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from mlir_offload.driver.project.file import Project
from mlir_offload.driver.project.graph import ProjectGraph
from mlir_offload.driver.project.state import ProjectState

_Choice = Callable[[PurePosixPath], bool]


def clean_project(project: Project, state: ProjectState, variants: Collection[str]) -> int:
    """Remove all that was made for these variants, for all of them without any; return how many files."""
    folders = [project.directory / variant for variant in variants] or [project.directory]
    return _remove(project, state, lambda path: any(map(path.is_relative_to, folders)))


def prune_project(graph: ProjectGraph, state: ProjectState) -> int:
    """Remove what was made by steps that the manifest no longer has; return how many files."""
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
                # Another file in it keeps it.
                parent.rmdir()
    state.drop(map(str, doomed))
    return removed


def _inside(project: Project, paths: Collection[PurePosixPath]) -> Iterator[Path]:
    """Yield the files that lie in the build directory: records come with a project from anyone."""
    directory = (project.root / project.directory).resolve()
    for path in paths:
        place = project.root / path
        if place.parent.resolve().is_relative_to(directory) and ".." not in path.parts:
            yield place
