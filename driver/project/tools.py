"""The tools of a project: found once per set of flags, and identified by content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct, field

from mlir_offload.driver.option.command_line import (
    CompileOptions,
    parse_arguments,
    read_arguments,
)
from mlir_offload.driver.option.config import (
    ConfigFile,
    Origin,
    check_settings,
    origin_arguments,
    settle,
)
from mlir_offload.driver.option.pipeline_file import pipeline_paths
from mlir_offload.driver.option.row import Setting
from mlir_offload.driver.option.table import COMPILER
from mlir_offload.driver.system.tool_watch import FileIdentity, ToolWatch
from mlir_offload.driver.tools.choose import (
    choose_rocm_for,
    choose_targets,
    choose_toolkit_for,
    places_of,
)
from mlir_offload.driver.tools.releases import BUILD_ROLES, Releases, choose_releases
from mlir_offload.driver.tools.toolchain_id import (
    RememberingRunner,
    identify_for,
    identify_kinds,
    identify_toolchain,
)
from mlir_offload.offload.kind_format import check_targets
from mlir_offload.toolchain.cuda import CudaToolkit
from mlir_offload.toolchain.process import Environment, Runner
from mlir_offload.toolchain.rocm import RocmInstallation
from mlir_offload.toolchain.target import Kind, Target, parse_offload_arch, uses_cuda, uses_rocm

_Places = tuple[str, str, str, str]
_PIPELINE = "--pipeline="
# Variables that clang reads and that are not part of the identity of the tools.
TIME_VARIABLE = "SOURCE_DATE_EPOCH"
INCLUDE_VARIABLES = ("CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")
LINK_VARIABLES = ("LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")
_FOLDER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
_ARCH_SETTING = "offload-arch"
# Settings that are not passed to the steps; all others affect the code.
_OTHER_SETTINGS = frozenset(
    (_ARCH_SETTING, "jobs", "message-format", "color", "quiet", "crash-diagnostics")
)


def _names_folder(option: str) -> bool:
    found = COMPILER.find(option)
    return found is not None and found[0].path == "folder"


def _is_of_steps(setting: Setting) -> bool:
    return setting.key not in _OTHER_SETTINGS and not setting.is_of_build


class StepTools(Struct, frozen=True):
    """The tools for one set of flags, and the parsed flags.

    `later_flags` are for the steps after a split, which do not run a pipeline. `pipeline_files` are the files that
    the pipeline is read from.
    """

    flags: tuple[str, ...]
    later_flags: tuple[str, ...]
    options: CompileOptions
    releases: Releases
    cuda: CudaToolkit | None
    rocm: RocmInstallation | None = None
    pipeline_files: tuple[PurePosixPath, ...] = ()
    # A cache, because thousands of steps request the identity.
    _identities: dict[Kind | None, str] = field(default_factory=dict)

    def identity(self, kind: Kind | None) -> str:
        """Return the identity of the tools for a device kind, or for host code if None."""
        if kind not in self._identities:
            march = self.options.march
            found = identify_for(kind, self.releases, self.cuda, self.rocm, march)
            self._identities[kind] = str(found)
        return self._identities[kind]

    def identity_of(self, targets: Iterable[Target]) -> str:
        """Return the identity of the tools for images of several targets, and for host code."""
        kinds = {target.kind for target in targets}
        march = self.options.march
        return str(identify_kinds(kinds, self.releases, self.cuda, self.rocm, march))

    def environment(self, *names: str) -> Environment:
        """Return the given variables that are set, with their values."""
        return tuple((name, value) for name in sorted(names) if (value := os.environ.get(name)))

    @property
    def image_environment(self) -> Environment:
        """Return the variables that affect device images: with -g, line tables contain a timestamp."""
        return self.environment(TIME_VARIABLE) if self.options.debug else ()

    @property
    def folders(self) -> tuple[PurePosixPath, ...]:
        """Return the directories of the user in which headers and libraries are searched."""
        named = [value for name, value in self.options.spelled if _names_folder(name)]
        listed = [os.environ.get(name, "").split(os.pathsep) for name in _FOLDER_VARIABLES]
        return tuple(map(PurePosixPath, filter(None, chain(named, *listed))))

    @property
    def whole_identity(self) -> str:
        """Return the identity of the complete toolchain."""
        return str(identify_toolchain(self.releases, self.cuda, self.rocm))

    @property
    def files(self) -> tuple[FileIdentity, ...]:
        """Return the files of the complete toolchain."""
        return identify_toolchain(self.releases, self.cuda, self.rocm).files


class ToolFinder(Struct):
    """Finds tools, and caches them. `settings` are the configuration files."""

    runner: Runner
    settings: tuple[ConfigFile, ...] = ()
    watch: ToolWatch = field(default_factory=ToolWatch)
    _releases: dict[_Places, Releases] = field(default_factory=dict)
    _cuda: dict[tuple[_Places, bool], CudaToolkit | None] = field(default_factory=dict)
    _targets: dict[tuple[str, ...], tuple[Target, ...]] = field(default_factory=dict)
    _tools: dict[tuple[tuple[str, ...], tuple[Target, ...]], StepTools] = field(
        default_factory=dict
    )

    @property
    def kinds(self) -> frozenset[Kind]:
        """Return the device kinds of all requested targets."""
        return frozenset(target.kind for targets in self._targets.values() for target in targets)

    @property
    def releases(self) -> tuple[Releases, ...]:
        """Return the LLVM releases that were found."""
        return tuple(self._releases.values())

    def targets(self, archs: tuple[str, ...]) -> tuple[Target, ...]:
        """Return the targets of architectures, by default those of the settings or of this host."""
        if archs not in self._targets:
            self._targets[archs] = choose_targets(archs or self._set_archs())
        return self._targets[archs]

    def described(self) -> list[object]:
        """Return a description of the found tools and targets, for `is_as`."""
        archs = [(names, list(map(str, found))) for names, found in self._targets.items()]
        tools = [
            (flags, list(map(str, targets)), found.whole_identity, found.identity_of(targets))
            for (flags, targets), found in self._tools.items()
        ]
        return [archs, tools]

    def is_as(self, described: Sequence[Any]) -> bool:
        """Return whether the same tools and targets are found now. Raises MlirOffloadError if one is missing."""
        archs, tools = described
        if any(list(map(str, self.targets(tuple(names)))) != found for names, found in archs):
            return False
        for flags, names, whole, identity in tools:
            targets = tuple(map(parse_offload_arch, names))
            found = self.tools(tuple(flags), targets)
            if (found.whole_identity, found.identity_of(targets)) != (whole, identity):
                return False
        return True

    def _set_archs(self) -> tuple[str, ...]:
        value = next(o.value for o in self._origins(()) if o.setting.key == _ARCH_SETTING)
        return value if isinstance(value, tuple) else ()

    def _origins(self, flags: tuple[str, ...]) -> tuple[Origin, ...]:
        return settle(flags, os.environ, self.settings)

    def tools(self, flags: tuple[str, ...], targets: tuple[Target, ...]) -> StepTools:
        """Return the tools for flags.

        Raises ToolchainError if one is missing, CompatibilityError if a target is not supported.
        """
        key = (flags, targets)
        if key not in self._tools:
            origins = self._origins(flags)
            chosen = [one for one in origins if _is_of_steps(one.setting)]
            added = tuple(origin_arguments(chosen))
            check_settings(self.settings, origins, added, os.environ)
            complete = (*added, *flags)
            tools = self._tools[key] = self._find(complete, targets)
            self.watch.add(tools.files)
        return self._tools[key]

    def _find(self, flags: tuple[str, ...], targets: tuple[Target, ...]) -> StepTools:
        # -c, because it determines the format of images, and each object is compiled with it.
        options = parse_arguments(("-c", "any.mlir", *flags))
        finder = RememberingRunner(self.runner)
        places = places_of(options)
        key = (options.llvm, options.for_clang, options.cuda_path, options.rocm_path)
        if key not in self._releases:
            found = choose_releases(options, places, finder, roles=BUILD_ROLES)
            self._releases[key] = found
        kinds = {target.kind for target in targets}
        needed = uses_cuda(kinds) or not targets
        if (key, needed) not in self._cuda:
            self._cuda[key, needed] = choose_toolkit_for(options, places, finder, needed=needed)
        releases, cuda = self._releases[key], self._cuda[key, needed]
        check_targets(targets, releases.makers(cuda))
        spelled = read_arguments(flags).spelled
        plugins = (Path(word.partition("=")[2]) for word in options.mlir_arguments)
        files = (*pipeline_paths(options.pipeline), *plugins)
        return StepTools(
            flags,
            tuple(f"{name}{value}" for name, value in spelled if name != _PIPELINE),
            options,
            releases,
            cuda,
            choose_rocm_for(places, needed=uses_rocm(kinds)),
            tuple(map(PurePosixPath, files)),
        )
