"""The LLVM releases of a build: the one that lowers MLIR, and the one whose clang links.

Rows of LLVM builds that no table knows are learned here; `calibration` probes their tools.
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
"""Programs for lowering that the user may replace, with the variable for each."""
# The roles that a project build or its steps may need, for any inputs.
BUILD_ROLES = (Role.LOWER, Role.LINK)


def learn_given(environment: Mapping[str, str]) -> None:
    """Load the rows in the environment. Raises VerificationError, InputOutputError."""
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
    """Load the learned rows embedded in objects, so that the same build need not be probed again.

    Raises CompatibilityError if two objects were compiled by different builds with the same number.
    """
    for item in objects:
        # If the tables contain the release, learned rows of another build of it do not apply.
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
    """Learn rows of a build that no table knows, as far as the device kinds and the sources need them."""
    if not llvm.is_measured:
        calibration.calibrate(llvm, kinds, runner, lowers=lowers, sources=sources)


def kinds_of(archs: Iterable[str]) -> frozenset[Kind]:
    """Return the device kinds of architectures, without `native`."""
    return frozenset(parse_offload_arch(arch).kind for arch in archs if arch != _NATIVE)


def learn_named(
    release: str, places: SearchPlaces, runner: Runner, environment: Mapping[str, str]
) -> None:
    """Learn a release named by number, if no table knows it and it is installed."""
    learn_given(environment)
    if not release.isdecimal() or int(release) in known_majors():
        return
    request = ToolchainRequest(release, f"--for-clang={release}")
    with contextlib.suppress(ToolchainError, CompatibilityError):
        found = find_llvm(replace(places, llvm=request))
        learn_llvm(choose_llvm(found, request, llvm_probe(runner), roles=[Role.LINK]), (), runner)


class Releases(Struct, frozen=True):
    """The LLVM releases that lower, compile and link: one, unless the options name two.

    `found` is the installation that lowers, before programs of the user replace some of `mlir`. `llvm` is the
    linking LLVM if it is installed. Otherwise it is the lowering LLVM, which compiles objects, and only
    `consumer`, a major version, is that of the linking LLVM.
    """

    mlir: LlvmToolchain
    llvm: LlvmToolchain
    consumer: int
    found: LlvmToolchain | None = None

    @property
    def is_one(self) -> bool:
        """Return whether one installation does everything."""
        return self.mlir == self.llvm and self.consumer == self.llvm.version.major

    @property
    def is_consumer_here(self) -> bool:
        """Return whether the linking LLVM is installed."""
        return self.consumer == self.llvm.version.major

    def makers(self, cuda: CudaToolkit | None, *, is_assembled: bool = True) -> CodeMakers:
        """Return the releases that generate device code."""
        return CodeMakers(self.mlir.version.major, self.consumer, cuda, is_assembled)

    @property
    def environment(self) -> Environment:
        """Return the variables by which another process of the driver finds the same releases."""
        own = (*self._own_programs(), *self._learned())
        mlir = self.found or self.mlir
        if mlir == self.llvm and self.is_consumer_here:
            return (("MLIR_OFFLOAD_LLVM", _place(self.llvm, "clang")), *own)
        clang = _place(self.llvm, "clang") if self.is_consumer_here else str(self.consumer)
        lowers = _place(mlir, "mlir-opt")
        return (("MLIR_OFFLOAD_LLVM", lowers), ("MLIR_OFFLOAD_FOR_CLANG", clang), *own)

    def _learned(self) -> Iterator[tuple[str, str]]:
        """Yield the variable with the learned rows of the linking LLVM, if there are any."""
        release = known_release(self.consumer)
        if release is not None:
            yield LEARNED, release.text

    def _own_programs(self) -> Iterator[tuple[str, str]]:
        """Yield the variables for replacement programs of the user."""
        if self.found is not None:
            for name, variable in OWN_PROGRAMS.items():
                if self.mlir.tool(name) != dict(self.found.tools).get(name):
                    yield variable, str(self.mlir.tool(name))


def _place(llvm: LlvmToolchain, name: str) -> str:
    """Return a path for an installation: its directory, or a program whose name contains the release.

    If the programs have plain names, this is the directory that a symbolic link leads to.
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
    """Return the releases of `--llvm=` and `--for-clang=`; without the latter, one release for all.

    `roles` are the required ones, by default those of the inputs. Unknown builds are probed for the `kinds`,
    by default those of the options. Programs of the user replace those that lower. Raises ToolchainError
    that names what is missing and the package to install, CompatibilityError for a program of the user with
    another release.
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
    """Return the user's programs for lowering: from options first, then from the environment."""
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
    """Return the releases of `--llvm=` and `--for-clang=`; without the latter, one release for all.

    `roles` are the required ones, by default those of the inputs. Raises ToolchainError that names what is
    missing and the package to install.
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
    """Raise ToolchainError for outputs that need the linking LLVM's clang: bitcode, and C++ with kernels.

    Objects of any compiler can be linked, and textual LLVM IR needs no compiler.
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
        msg = f"{missing.message}; {what} for LLVM {major} requires the clang of that release"
        hint = f"{missing.hint}; or make an object with -c --device-code=object"
        raise ToolchainError(msg, hint=hint)
