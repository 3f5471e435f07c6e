"""Read the manifest of a project, offload.yaml: modules, architectures, variants and targets.

Every error contains the line and column. The complete manifest is read before anything starts.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import TypeVar

from msgspec import Struct, field

from mlir_offload.driver.option.command_line import (
    COMPILED_SUFFIXES,
    LINKED_SUFFIXES,
    MLIR_SUFFIXES,
    CompileOptions,
    read_arguments,
)
from mlir_offload.driver.option.pipeline_file import read_pipeline
from mlir_offload.driver.option.row import nearest, value_hint
from mlir_offload.driver.option.trusted import check_trusted
from mlir_offload.driver.project.yaml import NodeReader, YamlMapping, YamlNode, YamlScalar, compose
from mlir_offload.toolchain.errors import InputOutputError, MlirOffloadError, UsageError
from mlir_offload.toolchain.target import parse_offload_arch

T = TypeVar("T")
_LARGEST_BYTES = 64 << 20
_DIRECTORY, _DEFAULT_VARIANT = "build", "default"
_DIRECTORY_LINE = re.compile(rb"^directory:[ \t]+([^\s'\"#]+)", re.MULTILINE)
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")
_PATTERN_CHARACTERS = frozenset("*?[")
_ARCHIVE_SUFFIX = ".a"
_NATIVE = "native"
# Options that the steps determine, or that apply to one invocation rather than a project.
_OWN_OPTIONS = (
    ("output", "-o"),
    ("stop_after_compile", "-c"),
    ("assembly", "-S"),
    ("emit_llvm", "-emit-llvm"),
    ("shared", "-shared"),
    ("dry_run", "-###"),
    ("time_report", "-ftime-report"),
    ("save_temps", "-save-temps"),
    ("offload_archs", "--offload-arch="),
    ("launcher", "--launcher="),
    ("cache", "--cache"),
    ("depfile", "-M"),
    ("compile_commands", "-MJ"),
    ("manifest", "--manifest="),
    ("header", "--emit-header="),
    ("last_step", "what stops before the object"),
    ("is_host_only", "--offload-host-only"),
    ("is_device_only", "--offload-device-only"),
    ("languages", "-x"),
)


class TargetKind(Enum):
    """The kind of file that a target links its objects into."""

    PROGRAM = "program"
    SHARED = "shared"
    STATIC = "static"


class Setting(Struct, frozen=True):
    """Architectures and flags that a project, a variant, a module or a target adds."""

    archs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


class Variant(Struct, frozen=True):
    """One way to build every module, such as release or debug."""

    name: str
    setting: Setting = field(default_factory=Setting)


class ProjectModule(Struct, frozen=True):
    """An `.mlir` file, with its location in the manifest. If `variants` is empty, it belongs to all."""

    path: PurePosixPath
    setting: Setting = field(default_factory=Setting)
    variants: tuple[str, ...] = ()
    location: str = ""


class LinkTarget(Struct, frozen=True):
    """A program or a library, its inputs, and its location in the manifest.

    `flags_of` contains the flags of single sources.
    """

    name: str
    kind: TargetKind
    inputs: tuple[PurePosixPath, ...]
    setting: Setting = field(default_factory=Setting)
    variants: tuple[str, ...] = ()
    location: str = ""
    flags_of: Mapping[PurePosixPath, tuple[str, ...]] = field(default_factory=dict)


class Project(Struct, frozen=True):
    """A manifest that has been read, with the path on the command line.

    All paths are relative to `root`, the directory of the manifest, where all steps run.
    """

    manifest: Path
    root: Path
    directory: PurePosixPath
    setting: Setting
    variants: tuple[Variant, ...]
    modules: tuple[ProjectModule, ...]
    targets: tuple[LinkTarget, ...]
    patterns: tuple[str, ...] = ()


def directory_in(manifest: Path) -> Path:
    """Return the build directory of a manifest, from its `directory:` line without parsing YAML."""
    found = _DIRECTORY_LINE.search(manifest.read_bytes())
    return Path(os.fsdecode(found[1]) if found else _DIRECTORY)


def matching(pattern: str) -> list[str]:
    """Return the files that match a pattern, sorted by name."""
    return sorted(map(str, Path().glob(pattern)))


def read_project(manifest: Path) -> Project:
    """Read a manifest. Its flags name files relative to its directory.

    Raises InputOutputError if it cannot be read, and UsageError with a location for an invalid manifest or for
    a flag that chooses programs in an untrusted manifest.
    """
    try:
        with manifest.open("rb") as stream:
            text = stream.read(_LARGEST_BYTES + 1)
    except OSError as error:
        msg = f"cannot read {manifest}: {error.strerror}"
        hint = "name the manifest of the project: mlir-offload build offload.yaml"
        raise InputOutputError(msg, hint=hint) from error
    if len(text) > _LARGEST_BYTES:
        msg = f"a manifest of more than {_LARGEST_BYTES >> 20} MiB is not read"
        raise UsageError(msg, location=str(manifest))
    with contextlib.chdir(manifest.parent):
        return _Reader(manifest, NodeReader(manifest), text).project(compose(text, manifest))


def _check_order(targets: Sequence[LinkTarget]) -> None:
    """Raise UsageError if libraries are linked against each other in a cycle."""
    known = {target.name: target for target in targets}
    needs = {
        target.name: {str(path) for path in target.inputs} & known.keys() for target in targets
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        names = error.args[1]
        msg = f"these targets need each other: {', '.join(names)}"
        hint = "put what both need into a library of its own"
        raise UsageError(msg, hint=hint, location=known[names[0]].location) from error


class _Reader(Struct):
    """Reads the parts of a manifest."""

    manifest: Path
    yaml: NodeReader
    content: bytes
    _flag_options: dict[tuple[str, ...], CompileOptions] = field(default_factory=dict)
    _patterns: dict[str, None] = field(default_factory=dict)

    def project(self, node: YamlNode) -> Project:
        known = dict.fromkeys(("directory", "archs", "flags", "variants", "modules", "targets"))
        parts = self.yaml.mapping(node, "the manifest", known)
        if "modules" not in parts:
            self.yaml.fail(node, "the manifest has no modules", "add 'modules: [a.mlir]'")
        variants = self._variants(parts.get("variants"))
        names = tuple(variant.name for variant in variants)
        modules = tuple(self._modules(parts["modules"], names))
        paths = {module.path for module in modules}
        targets = tuple(self._targets(parts.get("targets"), names, paths))
        _check_order(targets)
        return Project(
            self.manifest,
            Path.cwd(),
            self._directory(parts.get("directory")),
            self._setting(parts),
            variants,
            modules,
            targets,
            tuple(self._patterns),
        )

    def _directory(self, node: YamlNode | None) -> PurePosixPath:
        return PurePosixPath(_DIRECTORY) if node is None else self._path(node, "the directory")

    def _setting(self, parts: Mapping[str, YamlNode]) -> Setting:
        archs = self._each(parts.get("archs"), "archs", self._arch)
        return Setting(tuple(dict.fromkeys(archs)), self._flags(parts.get("flags")))

    def _each(
        self, node: YamlNode | None, what: str, read: Callable[[YamlNode, str], T]
    ) -> list[T]:
        return (
            [] if node is None else [read(item, word) for item, word in self.yaml.words(node, what)]
        )

    def _arch(self, node: YamlNode, name: str) -> str:
        if name != _NATIVE:
            self._checked(node, lambda: parse_offload_arch(name))
        return name

    def _flags(self, node: YamlNode | None) -> tuple[str, ...]:
        if node is None:
            return ()
        flags = tuple(word for _, word in self.yaml.words(node, "flags"))
        # Thousands of modules usually share a few sets of flags.
        if flags not in self._flag_options:
            self._flag_options[flags] = self._checked(node, lambda: read_arguments(flags))
        options, default = self._flag_options[flags], CompileOptions()
        if options.inputs:
            self.yaml.fail(node, f"'{options.inputs[0]}' is not a flag", "name it in 'inputs'")
        for name, spelling in _OWN_OPTIONS:
            if getattr(options, name) != getattr(default, name):
                hint = "use archs:" if name == "offload_archs" else "leave it out"
                self.yaml.fail(node, f"{spelling} is not a flag of a project", hint)
        for library in options.device_flags.libraries:
            self._check_there(node, PurePosixPath(library.path))
        self._checked(node, lambda: self._check_trusted(options))
        return flags

    def _check_trusted(self, options: CompileOptions) -> None:
        plugins: tuple[Path, ...] = ()
        if options.pipeline:
            plugins = read_pipeline(options.pipeline).plugins
        # The value of an option may be an option of another tool.
        flags = [word for key, value in options.spelled for word in (f"{key}{value}", value)]
        words = (*flags, *(f"--load-pass-plugin={plugin}" for plugin in plugins))
        # The current directory is that of the manifest.
        manifest = Path.cwd() / self.manifest.name
        check_trusted(manifest, self.content, words, os.environ)

    def _checked(self, node: YamlNode, read: Callable[[], T]) -> T:
        try:
            return read()
        except MlirOffloadError as error:
            self.yaml.fail(node, error.message, error.hint)

    def _variants(self, node: YamlNode | None) -> tuple[Variant, ...]:
        if node is None:
            return (Variant(_DEFAULT_VARIANT),)
        found = []
        known = dict.fromkeys(("archs", "flags"))
        for name, value in self.yaml.mapping(node, "variants").items():
            if not self._is_name(name):
                hint = "use letters and digits"
                self.yaml.fail(value, f"'{name}' is not a name of a variant", hint)
            is_empty = isinstance(value, YamlScalar) and value.is_null
            parts = {} if is_empty else self.yaml.mapping(value, f"variant {name}", known)
            found.append(Variant(name, self._setting(parts)))
        if not found:
            self.yaml.fail(node, "there is no variant", "name one, or leave 'variants' out")
        return tuple(found)

    @staticmethod
    def _is_name(name: str) -> bool:
        return _NAME_CHARACTERS.issuperset(name) and name.strip(".") != "" and name[0] != "-"

    def _variant_names(self, node: YamlNode | None, known: tuple[str, ...]) -> tuple[str, ...]:
        def read(item: YamlNode, name: str) -> str:
            if name not in known:
                self.yaml.fail(item, f"there is no variant '{name}'", value_hint(name, known))
            return name

        return tuple(self._each(node, "variants", read))

    def _modules(self, node: YamlNode, variants: tuple[str, ...]) -> Iterator[ProjectModule]:
        seen: set[PurePosixPath] = set()
        known = dict.fromkeys(("file", "archs", "flags", "variants"))
        for item in self.yaml.items(node, "modules"):
            parts = {"file": item}
            if isinstance(item, YamlMapping):
                parts = self.yaml.mapping(item, "a module", known)
            if "file" not in parts:
                self.yaml.fail(item, "the module has no file", "add 'file: a.mlir'")
            setting = self._setting(parts)
            names = self._variant_names(parts.get("variants"), variants)
            for path in self._files(parts["file"]):
                if path.suffix not in MLIR_SUFFIXES:
                    hint = "name it in the 'inputs' of a target"
                    self.yaml.fail(parts["file"], f"{path} is not a .mlir file", hint)
                if path in seen:
                    self.yaml.fail(parts["file"], f"{path} is listed twice", "remove one")
                seen.add(path)
                self._check_there(parts["file"], path)
                yield ProjectModule(path, setting, names, self.yaml.location(parts["file"]))

    def _targets(
        self, node: YamlNode | None, variants: tuple[str, ...], modules: set[PurePosixPath]
    ) -> Iterator[LinkTarget]:
        nodes = {} if node is None else self.yaml.mapping(node, "targets")
        known = dict.fromkeys(("kind", "inputs", "flags", "variants"))
        parts = {key: self.yaml.mapping(one, f"target {key}", known) for key, one in nodes.items()}
        kinds = {name: self._kind(part.get("kind")) for name, part in parts.items()}
        # A program cannot be an input of another target.
        libraries = {
            PurePosixPath(name) for name, kind in kinds.items() if kind is not TargetKind.PROGRAM
        }
        for name, value in nodes.items():
            if not self._is_name(name):
                self.yaml.fail(value, f"'{name}' is not a name of a file", "use letters and digits")
            if "inputs" not in parts[name]:
                self.yaml.fail(value, f"target {name} has no inputs", "add 'inputs: [a.mlir]'")
            inputs: dict[PurePosixPath, tuple[str, ...]] = {}
            for item in self.yaml.items(parts[name]["inputs"], "inputs"):
                file, flags = self._source(item)
                for path in self._files(file):
                    inputs[self._input(file, path, kinds[name], modules, libraries)] = flags
            if not inputs:
                self.yaml.fail(parts[name]["inputs"], f"target {name} has no inputs", "name some")
            names = self._variant_names(parts[name].get("variants"), variants)
            setting, place = self._setting(parts[name]), self.yaml.location(value)
            yield LinkTarget(name, kinds[name], tuple(inputs), setting, names, place, inputs)

    def _kind(self, node: YamlNode | None) -> TargetKind:
        if node is None:
            return TargetKind.PROGRAM
        name, known = self.yaml.text(node, "kind"), [kind.value for kind in TargetKind]
        if name not in known:
            self.yaml.fail(node, f"there is no kind '{name}' of target", value_hint(name, known))
        return TargetKind(name)

    def _source(self, item: YamlNode) -> tuple[YamlNode, tuple[str, ...]]:
        """Return the file of an input and its flags: a name without flags, or a mapping."""
        if not isinstance(item, YamlMapping):
            return item, ()
        parts = self.yaml.mapping(item, "an input", dict.fromkeys(("file", "flags")))
        if "file" not in parts:
            self.yaml.fail(item, "the input has no file", "add 'file: a.c'")
        suffix = PurePosixPath(self.yaml.text(parts["file"], "a file")).suffix
        if suffix not in COMPILED_SUFFIXES:
            hint = "flags of an .mlir file are given in 'modules'"
            self.yaml.fail(item, "only a source has flags of its own here", hint)
        return parts["file"], self._flags(parts.get("flags"))

    def _input(
        self,
        node: YamlNode,
        path: PurePosixPath,
        kind: TargetKind,
        modules: set[PurePosixPath],
        libraries: set[PurePosixPath],
    ) -> PurePosixPath:
        if path.suffix in MLIR_SUFFIXES and path not in modules:
            self.yaml.fail(node, f"{path} is not a module of this manifest", "add it to 'modules'")
        is_known = path.suffix in MLIR_SUFFIXES | COMPILED_SUFFIXES | LINKED_SUFFIXES
        if not is_known and path not in libraries:
            hint = "compile it by other means, and name the object"
            self.yaml.fail(node, f"{path}: no kind of file that is compiled or linked here", hint)
        is_library = path in libraries or path.suffix in {_ARCHIVE_SUFFIX, ".so"}
        if kind is TargetKind.STATIC and is_library:
            hint = "name both libraries where they are linked"
            self.yaml.fail(node, f"a static library cannot hold the library {path}", hint)
        if path not in libraries:
            self._check_there(node, path)
        return path

    def _check_there(self, node: YamlNode, path: PurePosixPath) -> None:
        if not Path(path).is_file():
            near = nearest(str(path), map(str, Path(path).parent.glob("*")))
            hint = f"did you mean '{near}'?" if near else "check the name"
            self.yaml.fail(node, f"no file is called '{path}'", hint)

    def _files(self, node: YamlNode) -> list[PurePosixPath]:
        """Return the files of a name or a pattern, sorted by name."""
        path = self._path(node, "a file")
        if _PATTERN_CHARACTERS.isdisjoint(str(path)):
            return [path]
        self._patterns[str(path)] = None
        found = [PurePosixPath(name) for name in matching(str(path))]
        if not found:
            self.yaml.fail(node, f"no file matches '{path}'", "check the folder and the ending")
        return found

    def _path(self, node: YamlNode, what: str) -> PurePosixPath:
        path = PurePosixPath(self.yaml.text(node, what))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            msg = f"'{path}' does not lie below the directory of the manifest"
            self.yaml.fail(node, msg, "put the manifest above all that it names")
        return path
