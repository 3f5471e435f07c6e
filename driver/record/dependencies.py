"""What the outputs of one call depend on, and the dependency files that say so."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field

from mlir_offload.driver.option.command_line import MLIR_SUFFIXES, CompileOptions, Mode
from mlir_offload.driver.option.compile_options import PREPROCESSED_SUFFIXES
from mlir_offload.driver.option.inputs import final_outputs, sources
from mlir_offload.driver.step import rule as step_rule
from mlir_offload.driver.system import depfile

STANDARD_STREAM = "-"


class Dependency(Struct, frozen=True):
    """A file that was read for a source; a system file is one that `-MMD` leaves out.

    `target` is the one whose device image needs it, empty if the source does for every target.
    """

    path: Path
    is_system: bool = False
    target: str = ""


class DependencyLog(Struct):
    """The files next to a source itself that its compilation read, noted by whoever read them."""

    _read: dict[Path, dict[Dependency, None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, source: Path, path: Path, *, is_system: bool = False, target: str = "") -> None:
        """Note that the compilation of `source` read the file: a pipeline, bitcode, a library."""
        with self._lock:
            self._read.setdefault(source, {})[Dependency(path, is_system, target)] = None

    def of(self, source: Path) -> tuple[Dependency, ...]:
        """Return what was noted for the source, in the order of the paths."""
        with self._lock:
            noted = list(self._read.get(source, ()))
        return tuple(sorted(noted, key=lambda dependency: str(dependency.path)))


class PlannedDepfile(Struct, frozen=True):
    """A dependency file that is to be written: its name (`-`: standard output), targets, sources."""

    file: str
    targets: tuple[str, ...]
    sources: tuple[Path, ...]


def plan_depfiles(options: CompileOptions) -> tuple[PlannedDepfile, ...]:
    """Return the dependency files of the call, named as clang names them.

    Where one file serves several sources, because `-MF` or the output of a link names it, clang
    leaves the rule of the last one; here the one rule holds all of them.
    """
    request, compiled = options.depfile, sources(options)
    links = options.mode is Mode.LINK
    # Of a link alone, which reads libraries, clang says nothing unless it is asked by name.
    if not request.is_wanted or not (compiled or (links and request.file)):
        return ()
    rules: list[tuple[Path, tuple[Path, ...]]]
    if options.mode is Mode.HEADER:
        rules = [(output, compiled) for output in final_outputs(options)]
    else:
        rules = [(output, (source,)) for output, source in compiled_objects(options)]
    if links and (options.output is not None or not compiled):
        (output,) = final_outputs(options)
        rules = [(output, compiled)]
    if request.file:
        return (_planned(options, request.file, (target for target, _ in rules), compiled),)
    return tuple(
        _planned(options, str(target.with_suffix(".d")), (target,), of) for target, of in rules
    )


def compiled_objects(options: CompileOptions) -> tuple[tuple[Path, Path], ...]:
    """Return for each source what it is compiled to; where it is linked, what `-c` would make."""
    compiled = sources(options)
    if options.mode is Mode.LINK:
        return tuple((Path(path.stem + ".o"), path) for path in compiled)
    return tuple(zip(final_outputs(options), compiled, strict=True))


def _planned(
    options: CompileOptions, file: str, targets: Iterable[Path], of: tuple[Path, ...]
) -> PlannedDepfile:
    made = [*targets]
    # What includes the header depends on it: a rule that makes both would be a circle.
    if options.header is not None and all(path.suffix in MLIR_SUFFIXES for path in of):
        made.append(options.header)
    named = options.depfile.targets or tuple(
        map(depfile.quote_for_make, dict.fromkeys(map(str, made)))
    )
    return PlannedDepfile(file, named, of)


def clang_depfile(output: Path) -> Path:
    """Return where clang notes what it read for an object in the workspace."""
    return output.with_suffix(".d")


def notes_dependencies(options: CompileOptions) -> bool:
    """Return whether someone asks which files were read."""
    return options.depfile.is_wanted or options.manifest is not None or options.why_rebuilt


def clang_depfile_arguments(options: CompileOptions, source: Path, output: Path) -> tuple[str, ...]:
    """Return the options by which clang notes what it includes, for a source that it preprocesses."""
    if not notes_dependencies(options) or source.suffix not in PREPROCESSED_SUFFIXES:
        return ()
    which = "-MD" if options.depfile.has_system_files else "-MMD"
    return (which, "-MF", str(clang_depfile(output)), "-MT", "object")


def read_dependencies(source: Path, output: Path, log: DependencyLog) -> tuple[Path, ...]:
    """Return what was read for a source that has been compiled to `output`, besides itself."""
    noted = [dependency.path for dependency in log.of(source)]
    rule = clang_depfile(output)
    if source.suffix in PREPROCESSED_SUFFIXES and rule.exists():
        text = rule.read_text(encoding="utf-8", errors="surrogateescape")
        noted += map(Path, depfile.read_prerequisites(text))
    return tuple(path for path in noted if path != source)


def depfile_step(
    options: CompileOptions,
    planned: PlannedDepfile,
    log: DependencyLog,
    compiled: Mapping[Path, Path],
    output: Path,
) -> step_rule.Depfile:
    """Return the step that writes the rule."""
    linked = final_outputs(options) if options.mode is Mode.LINK else ()
    noted = (item for read_for in (*planned.sources, *linked) for item in log.of(read_for))
    others = [
        str(dependency.path)
        for dependency in noted
        if options.depfile.has_system_files or not dependency.is_system
    ]
    from_clang = (
        clang_depfile(compiled[source])
        for source in planned.sources
        if source.suffix in PREPROCESSED_SUFFIXES
    )
    return step_rule.Depfile(
        sources=tuple(map(str, planned.sources)),
        made=planned.targets,
        others=tuple(dict.fromkeys(others)),
        rules=tuple(from_clang),
        phony=options.depfile.has_phony_targets,
        output=output,
    )
