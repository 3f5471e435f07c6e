"""Export the graph as a build file for Ninja or make, or as compile_commands.json for editors."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mlir_offload.driver.project.graph import ProjectGraph
from mlir_offload.driver.project.planned_step import LINK, SOURCE, SPLIT, ProjectStep
from mlir_offload.driver.project.report import write_text
from mlir_offload.driver.system.own_program import own_program
from mlir_offload.driver.system.workspace import make_directory
from mlir_offload.toolchain.errors import UsageError

_NAMES = {"ninja": "build.ninja", "make": "Makefile"}
COMMANDS = "compile_commands"
_HEAD = "# Made by mlir-offload build --emit={form}; run it in the directory of the manifest.\n"
# Names with one of these characters cannot be quoted for all versions of make.
_MAKE_CANNOT = frozenset(" \t\n#%:=;\\$*?[]~|&")


def emit_project(graph: ProjectGraph, form: str, output: Path | None) -> None:
    """Write the build file, by default to the build directory.

    Raises UsageError for a file name that the format cannot represent.
    """
    project = graph.project
    if form == COMMANDS:
        # The directory in which editors search for it.
        write_text(_commands(graph), output or project.root / f"{COMMANDS}.json")
        return
    place = output or project.root / project.directory / _NAMES[form]
    if output is None:
        make_directory(place.parent)
    write_text(_HEAD.format(form=form) + "\n".join(_FORMS[form](graph)) + "\n", place)


def _commands(graph: ProjectGraph) -> str:
    """Return compile_commands.json: for each source the compiler command that makes its object."""
    program, root = own_program(), str(graph.project.root)
    entries = []
    for step in graph.steps:
        if step.kind not in {SPLIT, SOURCE}:
            continue
        call = (step.whole() if step.whole else step).action.step
        if call is not None:
            entry = {"directory": root, "file": str(step.module), "output": str(call.output)}
            entries.append(entry | {"arguments": [*program, *call.compiler_words]})
    return json.dumps(entries, indent=1) + "\n"


def _ninja(graph: ProjectGraph) -> Iterator[str]:
    yield "ninja_required_version = 1.5"
    yield "bar = |"
    yield f"mlir_offload = {_ninja_text(shlex.join(own_program()))}"
    for rule, extra in (("step", ""), ("noting", "\n  depfile = $depfile\n  deps = gcc")):
        yield f"rule {rule}"
        # `restat`: if a step does not change its outputs, ninja does not run the steps that depend on them.
        yield f"  command = $environment $mlir_offload $arguments\n  description = $label\n  restat = 1{extra}"
    for step in graph.steps:
        rule = "noting" if step.action.depfile else "step"
        outputs, inputs = _ninja_paths(step.action.outputs), _ninja_paths(step.action.inputs)
        yield f"build {outputs}: {rule} {inputs}"
        yield f"  arguments = {_ninja_text(shlex.join(step.action.arguments))}"
        if step.action.environment:
            yield f"  environment = {_ninja_text(_assignments(step))}"
        yield f"  label = {_ninja_text(step.label)}"
        if step.action.depfile:
            yield f"  depfile = {_ninja_text(str(step.action.depfile))}"


def _assignments(step: ProjectStep) -> str:
    """Return the variables that affect the step's outputs, with their current values, as an `env` prefix."""
    words = (f"{name}={value}" for name, value in step.action.environment)
    return shlex.join(("env", *words))


def _ninja_text(text: str) -> str:
    if "\n" in text:
        msg = f"ninja cannot take the file name '{text}'"
        raise UsageError(msg, hint="rename the file")
    return text.replace("$", "$$")


def _ninja_paths(paths: tuple[object, ...]) -> str:
    return " ".join(map(_ninja_path, paths))


def _ninja_path(path: object) -> str:
    # Ninja has no escape for a bar, but it does not parse the value of a variable.
    text = _ninja_text(str(path)).replace(" ", "$ ").replace(":", "$:")
    return text.replace("|", "${bar}")


def _make(graph: ProjectGraph) -> Iterator[str]:
    yield f"MLIR_OFFLOAD := {_make_text(shlex.join(own_program()))}"
    yield ".DELETE_ON_ERROR:"
    yield ".PHONY: all"
    yield f"all: {' '.join(_make_path(path) for step in graph.steps for path in step.action.outputs)}"
    for step in graph.steps:
        yield from _make_rule(step)


def _make_rule(step: ProjectStep) -> Iterator[str]:
    first, *others = step.action.outputs
    yield f"{_make_path(first)}: {' '.join(map(_make_path, step.action.inputs))}"
    # `+` marks commands that use make's jobserver; a link does.
    mark = "+" if step.kind == LINK else ""
    yield "\t@mkdir -p $(@D)"
    environment = f"{_make_text(_assignments(step))} " if step.action.environment else ""
    yield f"\t{mark}{environment}$(MLIR_OFFLOAD) {_make_text(shlex.join(step.action.arguments))}"
    for output in others:
        # The recipe of the first output writes it too, and keeps it if nothing changed.
        yield f"{_make_path(output)}: {_make_path(first)} ;"
    if step.action.depfile:
        yield f"-include {_make_path(step.action.depfile)}"


def _make_text(text: str) -> str:
    return text.replace("$", "$$").replace("\n", " ")


def _make_path(path: object) -> str:
    text = str(path)
    if not _MAKE_CANNOT.isdisjoint(text):
        msg = f"make cannot take the file name '{text}'"
        raise UsageError(msg, hint="rename the file, or use --emit=ninja")
    return text


_FORMS: Mapping[str, Callable[[ProjectGraph], Iterator[str]]] = {"ninja": _ninja, "make": _make}
