"""The releases of LLVM in one build: the one that lowers MLIR, and the one whose clang links.

Of builds of LLVM that no table knows rows are learned here. Asking their tools is in `calibration`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option.command_line import (
    MLIR_SUFFIXES,
    CompileOptions,
    DeviceCode,
    Mode,
    sources,
)
from mlir_offload.driver.tools import calibration
from mlir_offload.offload import unmeasured
from mlir_offload.offload.abi import known_majors
from mlir_offload.offload.kind_format import CodeMakers
from mlir_offload.toolchain.errors import CompatibilityError, InputOutputError, ToolchainError
from mlir_offload.toolchain.llvm import LLVM_VERSION, LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.search import SearchPlaces, find_llvm
from mlir_offload.toolchain.tables import LEARNED, known_release, learn_release, parse_learned
from mlir_offload.toolchain.target import Kind, parse_offload_arch
from mlir_offload.toolchain.tool import Role, ToolchainRequest, load_llvm_table, probe_version

if TYPE_CHECKING:
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.toolchain.cuda import CudaToolkit
    from mlir_offload.toolchain.process import Environment, Runner

_NATIVE = "native"
OWN_PROGRAMS = {
    "mlir-opt": "MLIR_OFFLOAD_MLIR_OPT",
    "mlir-translate": "MLIR_OFFLOAD_MLIR_TRANSLATE",
}
"""Programs that lower and that the user may name: each with the variable that names it."""
# What a build of a project, or a step of it, may need, whatever its inputs.
BUILD_ROLES = (Role.LOWER, Role.LINK)


def learn_given(environment: Mapping[str, str]) -> None:
    """Take the rows that the environment gives. Raises VerificationError, InputOutputError."""
    given = environment.get(LEARNED, "")
    if not given:
        return
    text, place = given, LEARNED
    if not given.startswith("{"):
        try:
            text, place = Path(given).read_text(encoding="utf-8"), given
        except (OSError, ValueError) as error:
            msg = f"{LEARNED}={given}: cannot be read: {error}"
            hint = "name what 'mlir-offload learn --json' wrote"
            raise InputOutputError(msg, hint=hint) from error
    learn_release(parse_learned(text, place))


def learn_of_objects(objects: Iterable[ObjectContents]) -> None:
    """Take the rows that objects were compiled by: a build that has them need not be asked again.

    Raises CompatibilityError where two were compiled by builds of one number that differ.
    """
    for item in objects:
        # Of a release that the tables hold, another build's rows say nothing.
        for release in item.learned:
            if release.major in load_llvm_table().measured:
                continue
            try:
                learn_release(release)
            except CompatibilityError as error:
                error.location = item.location
                raise


def learn_llvm(
    llvm: LlvmToolchain,
    kinds: Collection[Kind],
    runner: Runner,
    *,
    lowers: bool = False,
    sources: Iterable[Path] = (),
) -> None:
    """Learn what no table knows of a build, as far as the device kinds and the sources to lower need it."""
    if not llvm.is_measured:
        calibration.calibrate(llvm, kinds, runner, lowers=lowers, sources=sources)


def kinds_of(archs: Iterable[str]) -> frozenset[Kind]:
    """Return the kinds of the architectures that are named."""
    return frozenset(parse_offload_arch(arch).kind for arch in archs if arch != _NATIVE)


def learn_named(
    release: str, places: SearchPlaces, runner: Runner, environment: Mapping[str, str]
) -> None:
    """Learn a release that is named by its number, where no table knows it and it is installed."""
    learn_given(environment)
    if not release.isdecimal() or int(release) in known_majors():
        return
    request = ToolchainRequest(release, f"--for-clang={release}")
    with contextlib.suppress(ToolchainError, CompatibilityError):
        found = find_llvm(replace(places, llvm=request))
        learn_llvm(choose_llvm(found, request, llvm_probe(runner), roles=[Role.LINK]), (), runner)


class Releases(Struct, frozen=True):
    """Who lowers, whose clang compiles here, and who links: one release, unless two were asked for.

    `found` is the installation that lowers, as it was before programs of the user took their place in
    `mlir`. `llvm` is the linking LLVM where it is installed; where it is not, an object is compiled by
    the lowering LLVM, and `consumer` alone says for whom.
    """

    mlir: LlvmToolchain
    llvm: LlvmToolchain
    consumer: int
    found: LlvmToolchain | None = None

    @property
    def is_one(self) -> bool:
        """Say whether one installation does all."""
        return self.mlir == self.llvm and self.consumer == self.llvm.version.major

    @property
    def is_consumer_here(self) -> bool:
        """Say whether the linking LLVM is installed."""
        return self.consumer == self.llvm.version.major

    def makers(self, cuda: CudaToolkit | None, *, is_assembled: bool = True) -> CodeMakers:
        """Return who makes device code with these releases."""
        return CodeMakers(self.mlir.version.major, self.consumer, cuda, is_assembled)

    @property
    def environment(self) -> Environment:
        """Return the variables by which another call of the driver finds the same."""
        own = (*self._own_programs(), *self._learned())
        mlir = self.found or self.mlir
        if mlir == self.llvm and self.is_consumer_here:
            return (("MLIR_OFFLOAD_LLVM", _place(self.llvm, "clang")), *own)
        clang = _place(self.llvm, "clang") if self.is_consumer_here else str(self.consumer)
        lowers = _place(mlir, "mlir-opt")
        return (("MLIR_OFFLOAD_LLVM", lowers), ("MLIR_OFFLOAD_FOR_CLANG", clang), *own)

    def _learned(self) -> Iterator[tuple[str, str]]:
        """Yield the variable with what was learned of the linking LLVM."""
        release = known_release(self.consumer)
        if release is not None:
            yield LEARNED, release.text

    def _own_programs(self) -> Iterator[tuple[str, str]]:
        """Yield the variables that name the programs of the user."""
        if self.found is not None:
            for name, variable in OWN_PROGRAMS.items():
                if self.mlir.tool(name) != dict(self.found.tools).get(name):
                    yield variable, str(self.mlir.tool(name))


def _place(llvm: LlvmToolchain, name: str) -> str:
    """Return what names an installation: its folder, or a program whose name tells the release.

    A link to a program represents the folder that it leads to: where names are plain, that is ours.
    """
    tool = llvm.tool(name)
    return str(tool.parent if tool.name == name else tool)


def choose_releases(
    options: CompileOptions,
    places: SearchPlaces,
    runner: Runner,
    *,
    roles: Collection[Role] = (),
    kinds: Collection[Kind] | None = None,
) -> Releases:
    """Return the releases that `--llvm=` and `--for-clang=` name; without the latter, one for all.

    `roles` are those that are played; by default what the inputs ask for. What no table knows of a release is
    learned for the `kinds`, by default those that the options name. Programs of the user take
    the place of those that lower. Raises ToolchainError naming what is missing and the package to
    install, CompatibilityError for a program of the user of another release.
    """
    learn_given(os.environ)
    releases = _choose(options, places, runner, roles=roles)
    chosen = kinds_of(options.offload_archs) if kinds is None else kinds
    lowers = Role.LOWER in (roles or _roles(options))
    for llvm in dict.fromkeys((releases.mlir, releases.llvm)):
        is_lowering = lowers and llvm == releases.mlir
        learn_llvm(llvm, chosen, runner, lowers=is_lowering, sources=_sources(options))
    own = _own_programs(options)
    if not own:
        return releases
    return _with_own(releases, own, runner)


def _sources(options: CompileOptions) -> list[Path]:
    return [path for path in sources(options) if path.suffix in MLIR_SUFFIXES]


def _own_programs(options: CompileOptions) -> dict[str, Path]:
    """Return the programs of the user that lower: options first, then the environment."""
    given = {"mlir-opt": options.mlir_opt, "mlir-translate": options.mlir_translate}
    named = {name: given[name] or os.environ.get(OWN_PROGRAMS[name], "") for name in given}
    return {name: Path(os.path.abspath(path)) for name, path in named.items() if path}  # noqa: PTH100 (links stay)


def _with_own(releases: Releases, own: dict[str, Path], runner: Runner) -> Releases:
    """Return the releases with these programs. Raises CompatibilityError for another release."""
    mlir = releases.mlir
    for name, path in own.items():
        probed = probe_version(runner, path, LLVM_VERSION)
        if probed.version is None:
            msg = f"--{name}={path}: {probed.reason}"
            raise ToolchainError(msg, hint=f"name a program that is an {name}")
        if probed.version.major != mlir.version.major:
            msg = f"--{name}={path} is of LLVM {probed.version}, and LLVM {mlir.version} lowers"
            raise CompatibilityError(msg, hint=f"add --llvm={probed.version.major}")
    tools = tuple((dict(mlir.tools) | own).items())
    return replace(releases, mlir=replace(mlir, tools=tools), found=mlir)


def _choose(
    options: CompileOptions, places: SearchPlaces, runner: Runner, *, roles: Collection[Role] = ()
) -> Releases:
    """Return the releases that `--llvm=` and `--for-clang=` name; without the latter, one for all.

    `roles` are those that are played; by default what the inputs ask for. Raises ToolchainError
    naming what is missing and the package to install.
    """
    probe = llvm_probe(runner)
    ordered = tuple(roles) or _roles(options)
    request = places.consumer
    if request is None or options.is_for_any_clang:
        llvm = choose_llvm(find_llvm(places), places.llvm, probe, roles=ordered)
        return Releases(llvm, llvm, llvm.version.major)
    if Role.LOWER not in ordered:
        llvm = choose_llvm(find_llvm(replace(places, llvm=request)), request, probe, roles=ordered)
        return Releases(llvm, llvm, llvm.version.major)
    mlir = choose_llvm(find_llvm(places), places.llvm, probe, roles=[Role.LOWER])
    if request.is_release and request.is_satisfied_by(mlir.version) and mlir.can(Role.LINK):
        return Releases(mlir, mlir, mlir.version.major)
    try:
        llvm = choose_llvm(
            find_llvm(replace(places, llvm=request)), request, probe, roles=[Role.LINK]
        )
    except ToolchainError as error:
        if request.major is None or options.mode is Mode.LINK:
            raise
        _check_without_consumer(options, request.major, error)
        return Releases(mlir, mlir, request.major)
    return Releases(mlir, llvm, llvm.version.major)


def _roles(options: CompileOptions) -> tuple[Role, ...]:
    return (Role.LOWER, Role.LINK) if _sources(options) else (Role.LINK,)


def _check_without_consumer(options: CompileOptions, major: int, missing: ToolchainError) -> None:
    """Refuse what only the clang of the linking LLVM writes: bitcode, and C++ with kernels.

    Objects it links whoever compiled them, and LLVM IR in text needs no compiler.
    """
    note = unmeasured.unmeasured_note(major)
    if note and known_release(major) is None:
        show_note(note)
    what = ""
    if options.wanted_device_code is DeviceCode.BITCODE:
        what = "device bitcode"
    elif options.has_gpu_cpp:
        what = "C++ with kernels"
    elif options.mode is Mode.LLVM_BITCODE:
        what = "bitcode"
    if what:
        msg = f"{missing.message}, and {what} for LLVM {major} is made by its own clang"
        hint = f"{missing.hint}; or make an object with -c --device-code=object"
        raise ToolchainError(msg, hint=hint)
