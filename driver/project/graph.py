"""The dependency graph of the steps of a project."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from mlir_offload.driver.option.command_line import (
    COMPILED_SUFFIXES,
    CPP_SUFFIXES,
    GPU_CPP,
    MLIR_SUFFIXES,
)
from mlir_offload.driver.option.compile_options import PREPROCESSED_SUFFIXES
from mlir_offload.driver.project.file import (
    LinkTarget,
    Project,
    ProjectModule,
    TargetKind,
    Variant,
)
from mlir_offload.driver.project.module import ModulePlan
from mlir_offload.driver.project.planned_step import (
    ARCHIVE,
    LINK,
    SOURCE,
    ProjectStep,
    sibling,
)
from mlir_offload.driver.project.tools import (
    INCLUDE_VARIABLES,
    LINK_VARIABLES,
    TIME_VARIABLE,
    ToolFinder,
)
from mlir_offload.driver.step.action import Action, action_of
from mlir_offload.driver.step.compiler_step import ArchiveStep, SourceStep
from mlir_offload.toolchain.errors import MlirOffloadError, UsageError
from mlir_offload.toolchain.process import as_operand
from mlir_offload.toolchain.target import Target, device_kind
from mlir_offload.translate.target_attribute import libraries_in_source

_FOLDERS = {TargetKind.PROGRAM: "bin", TargetKind.SHARED: "lib", TargetKind.STATIC: "lib"}


class ProjectGraph(Struct, frozen=True, dict=True):
    """All steps of a project, in an order in which each follows those whose outputs it reads."""

    project: Project
    steps: tuple[ProjectStep, ...] = field(default_factory=tuple)

    @cached_property
    def makers(self) -> Mapping[PurePosixPath, int]:
        """Return the number of the step that writes each file."""
        return {
            output: number
            for number, step in enumerate(self.steps)
            for output in step.action.outputs
        }

    def needs(self, number: int) -> frozenset[int]:
        """Return the numbers of the steps whose outputs a step reads."""
        makers = (self.makers.get(path) for path in self.steps[number].action.reads)
        return frozenset(maker for maker in makers if maker is not None)

    def module_steps(self, number: int) -> range:
        """Return the numbers of the steps of a module, given its first step; for another step, only that."""
        return range(number, number + self.steps[number].steps)

    def whole(self, number: int) -> ProjectStep:
        """Return one step that does all steps of a module, given the number of its first one."""
        whole = self.steps[number].whole
        return whole() if whole else self.steps[number]


def plan_project(project: Project, tools: ToolFinder, variants: Sequence[str] = ()) -> ProjectGraph:
    """Return the steps of a project, or of some of its variants.

    Raises UsageError for an unknown variant, ToolchainError for a missing tool, CompatibilityError for an
    unsupported target.
    """
    known = {variant.name: variant for variant in project.variants}
    for name in variants:
        if name not in known:
            msg = f"there is no variant '{name}'"
            raise UsageError(msg, hint=f"known are {', '.join(known)}")
    chosen = [known[name] for name in variants] or list(project.variants)
    steps = [step for variant in chosen for step in _VariantPlan(project, variant, tools).steps()]
    graph = ProjectGraph(project, tuple(steps))
    _check_outputs(graph)
    return graph


def _check_outputs(graph: ProjectGraph) -> None:
    """Raise UsageError if two steps write the same file, such as an object and a program."""
    for number, step in enumerate(graph.steps):
        for output in step.action.outputs:
            other = graph.steps[graph.makers[output]]
            if graph.makers[output] != number:
                msg = f"{output} is made by two steps: {step.label}, {other.label}"
                raise UsageError(
                    msg, hint="give the target another name", location=str(graph.project.manifest)
                )


@contextlib.contextmanager
def _told_at(location: str) -> Iterator[None]:
    """Add the location in the manifest to errors that have none."""
    try:
        yield
    except MlirOffloadError as error:
        error.location = error.location or location
        raise


class _VariantPlan(Struct, frozen=True):
    project: Project
    variant: Variant
    tools: ToolFinder

    def steps(self) -> Iterator[ProjectStep]:
        modules = [item for item in self.project.modules if self._has(item.variants)]
        for module in modules:
            with _told_at(module.location):
                planned = list(self._module(module))
            yield from planned
        compiled = {module.path for module in modules}
        sources: dict[PurePosixPath, tuple[str, ...]] = {}
        for target in self.project.targets:
            if self._has(target.variants):
                with _told_at(target.location):
                    planned = list(self._target(target, compiled, sources))
                yield from planned

    def _target(
        self,
        target: LinkTarget,
        compiled: set[PurePosixPath],
        sources: dict[PurePosixPath, tuple[str, ...]],
    ) -> Iterator[ProjectStep]:
        for path in target.inputs:
            if path.suffix in COMPILED_SUFFIXES and self._is_new(path, target, sources):
                yield self._source(path, target)
        is_static = target.kind is TargetKind.STATIC
        inputs = self._objects(target, compiled)
        yield self._archive(target, inputs) if is_static else self._link(target, inputs)

    @staticmethod
    def _is_new(
        path: PurePosixPath, target: LinkTarget, sources: dict[PurePosixPath, tuple[str, ...]]
    ) -> bool:
        """Return whether a source has no step yet. Raises UsageError if its step has other flags."""
        flags = target.flags_of.get(path, ())
        if path in sources and sources[path] != flags:
            msg = f"{path} is compiled once for each variant, and has other flags in another target"
            hint = "give it the same flags in all targets, or copy it"
            raise UsageError(msg, hint=hint, location=target.location)
        is_new = path not in sources
        sources[path] = flags
        return is_new

    def _has(self, names: tuple[str, ...]) -> bool:
        return not names or self.variant.name in names

    def _flags(self, own: tuple[str, ...]) -> tuple[str, ...]:
        return (*self.project.setting.flags, *self.variant.setting.flags, *own)

    def _targets(self, own: tuple[str, ...]) -> tuple[Target, ...]:
        return self.tools.targets(own or self.variant.setting.archs or self.project.setting.archs)

    def _module(self, module: ProjectModule) -> Iterator[ProjectStep]:
        targets = self._targets(module.setting.archs)
        tools = self.tools.tools(self._flags(module.setting.flags), targets)
        source = self.project.root / module.path
        attached = libraries_in_source(source.read_bytes()) if source.is_file() else ()
        place = self._place(module.path)
        plan = ModulePlan(self.variant.name, module.path, place, tools, targets, attached)
        yield plan.split()
        if not tools.options.makes_non_rdc_objects:
            yield from (plan.device(target) for target in targets)
        yield plan.join()

    def _place(self, path: PurePosixPath) -> PurePosixPath:
        return self.project.directory / self.variant.name / path

    def _source(self, path: PurePosixPath, target: LinkTarget) -> ProjectStep:
        """Return the step for a source that is not MLIR; CUDA C++ and HIP C++ have device code."""
        kind = GPU_CPP.get(path.suffix)
        targets = tuple(item for item in self._targets(()) if item.kind is kind) if kind else ()
        if kind is not None and not targets:
            msg = f"{path} is compiled for GPUs of kind {kind} only, and variant {self.variant.name} names none"
            hint = f"add such an architecture to 'archs', for example {device_kind(kind).example}"
            raise UsageError(msg, hint=hint, location=target.location)
        tools = self.tools.tools(self._flags(target.flags_of.get(path, ())), targets)
        place = self._place(path)
        output = sibling(place, ".o")
        depfile = sibling(place, ".d") if path.suffix in PREPROCESSED_SUFFIXES else None
        archs = (f"--offload-arch={','.join(map(str, targets))}",) if targets else ()
        step = SourceStep(
            source=path,
            output=output,
            flags=(*tools.later_flags, *archs),
            depfiles=(depfile,) if depfile else (),
            toolchain_id=tools.identity(kind),
        )
        action = action_of(
            step,
            (path,),
            (output,),
            environment=tools.environment(*INCLUDE_VARIABLES, TIME_VARIABLE),
            depfile=depfile,
        )
        action = replace(action, folders=(path.parent, *tools.folders))
        return ProjectStep(SOURCE, path, self.variant.name, action)

    def _objects(
        self, target: LinkTarget, compiled: set[PurePosixPath]
    ) -> tuple[PurePosixPath, ...]:
        """Return the link inputs of a target: objects, and outputs of library targets."""
        libraries = {item.name: item for item in self._libraries()}
        return tuple(self._object(target, path, compiled, libraries) for path in target.inputs)

    def _libraries(self) -> Iterator[LinkTarget]:
        """Yield the library targets of this variant, which other targets may link."""
        for target in self.project.targets:
            if target.kind is not TargetKind.PROGRAM and self._has(target.variants):
                yield target

    def _object(
        self,
        target: LinkTarget,
        path: PurePosixPath,
        compiled: set[PurePosixPath],
        libraries: Mapping[str, LinkTarget],
    ) -> PurePosixPath:
        if path.suffix in MLIR_SUFFIXES and path not in compiled:
            msg = f"target {target.name} needs {path}, which variant {self.variant.name} leaves out"
            hint = "give both the same 'variants'"
            raise UsageError(msg, hint=hint, location=target.location)
        if str(path) in libraries:
            return self._output(libraries[str(path)].kind, str(path))
        is_made = path.suffix in MLIR_SUFFIXES | COMPILED_SUFFIXES
        return sibling(self._place(path), ".o") if is_made else path

    def _output(self, kind: TargetKind, name: str) -> PurePosixPath:
        return self.project.directory / self.variant.name / _FOLDERS[kind] / name

    def _link(self, target: LinkTarget, inputs: tuple[PurePosixPath, ...]) -> ProjectStep:
        tools = self.tools.tools(self._flags(target.setting.flags), ())
        output = self._output(target.kind, target.name)
        is_shared = target.kind is TargetKind.SHARED
        # With a soname without directory, the loader finds the library by the run path.
        shared = ("-shared", f"-Wl,-soname,{target.name}") if is_shared else ()
        # The link step sees only objects, which do not show that their source was C++.
        cpp = ("-lstdc++",) if self._has_cpp(target) else ()
        depfile = sibling(output, ".d")
        action = Action(
            (
                *(*(as_operand(str(path)) for path in inputs), *shared, *self._run_path(target)),
                *("-o", str(output), "-j1", "--no-config"),
                *("-MD", "-MF", str(depfile), *tools.later_flags, *cpp),
            ),
            inputs,
            (output,),
            tools.whole_identity,
            environment=tools.environment(*LINK_VARIABLES, TIME_VARIABLE),
            depfile=depfile,
            folders=tools.folders,
        )
        return ProjectStep(LINK, PurePosixPath(target.name), self.variant.name, action)

    def _run_path(self, target: LinkTarget) -> tuple[str, ...]:
        """Return -rpath relative to the output, so that the loader finds the project's shared libraries after a move."""
        shared = {item.name for item in self._libraries() if item.kind is TargetKind.SHARED}
        if shared.isdisjoint(map(str, target.inputs)):
            return ()
        way = "" if target.kind is TargetKind.SHARED else f"/../{_FOLDERS[TargetKind.SHARED]}"
        return (f"-Wl,-rpath,$ORIGIN{way}",)

    def _has_cpp(self, target: LinkTarget) -> bool:
        parts = {item.name: item for item in self._libraries()}
        linked = (target, *(parts[str(path)] for path in target.inputs if str(path) in parts))
        return any(path.suffix in CPP_SUFFIXES for item in linked for path in item.inputs)

    def _archive(self, target: LinkTarget, inputs: tuple[PurePosixPath, ...]) -> ProjectStep:
        tools = self.tools.tools(self._flags(target.setting.flags), ())
        first, *others = inputs
        step = ArchiveStep(
            source=first,
            output=self._output(target.kind, target.name),
            flags=tools.later_flags,
            members=tuple(others),
            toolchain_id=tools.identity(None),
        )
        action = action_of(step, inputs, (self._output(target.kind, target.name),))
        return ProjectStep(ARCHIVE, PurePosixPath(target.name), self.variant.name, action)
