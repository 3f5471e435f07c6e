"""Builds of LLVM that no table knows: where their rows come from. Asking their tools is in `calibration`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlir_offload.driver.tools import calibration
from mlir_offload.offload.abi import known_majors
from mlir_offload.toolchain.errors import CompatibilityError, InputOutputError, ToolchainError
from mlir_offload.toolchain.learned import LEARNED, learn_release, parse_learned
from mlir_offload.toolchain.llvm import LlvmToolchain, choose_llvm, llvm_probe
from mlir_offload.toolchain.search import SearchPlaces, find_llvm
from mlir_offload.toolchain.target import Kind, parse_offload_arch
from mlir_offload.toolchain.tool import Role, ToolchainRequest, load_llvm_table

if TYPE_CHECKING:
    from mlir_offload.offload.link.objects import ObjectContents
    from mlir_offload.toolchain.process import Runner

_NATIVE = "native"


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
