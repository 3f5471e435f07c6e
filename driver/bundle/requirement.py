"""The requirements of a bundle on the link host: computed when it is made, checked when it is linked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mlir_offload.driver.compile.kind_build import LinkTools, builds_of
from mlir_offload.driver.tools.choose import choose_rocm_for, choose_toolkit
from mlir_offload.driver.tools.releases import learn_given, learn_llvm
from mlir_offload.offload.abi import (
    ANY_CONSUMER,
    OffloadAbi,
    any_exceptions,
    known_majors,
    load_abi,
)
from mlir_offload.offload.container.mob_manifest import LlvmRequirement, MobManifest
from mlir_offload.offload.kind.hip import loads_hip
from mlir_offload.offload.link.finding import Finding
from mlir_offload.offload.runtime import runtime_digest
from mlir_offload.toolchain.errors import CompatibilityError, MlirOffloadError, ToolchainError
from mlir_offload.toolchain.llvm import (
    LlvmInstallation,
    LlvmToolchain,
    choose_llvm,
    llvm_probe,
)
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.ptx import first_cuda_for
from mlir_offload.toolchain.rocm import RocmInstallation, load_rocm_table
from mlir_offload.toolchain.search import SearchPlaces, find_llvm
from mlir_offload.toolchain.target import (
    Target,
    device_kind,
    host_triple,
    uses_cuda,
    uses_rocm,
)
from mlir_offload.toolchain.tool import Role, load_llvm_table
from mlir_offload.translate.kind.cuda import links_library_into_ir


def llvm_requirement(for_clang: str, producer: int) -> LlvmRequirement:
    """Return the releases that read LLVM IR of one release with entries for `--for-clang=`.

    Every LLVM reads the IR of older releases; for an older release, the IR is downgraded. Raises
    CompatibilityError for an unknown release.
    """
    if for_clang == ANY_CONSUMER:
        without = tuple(major for major in any_exceptions() if major > producer)
        return LlvmRequirement(producer, None, without)
    consumer, known = int(for_clang), known_majors()
    wanted = load_abi(consumer)
    oldest = min(producer, consumer)
    alike = [m for m in known if m >= oldest and _is_alike(load_abi(m), wanted)]
    return LlvmRequirement(alike[0], None if alike[-1] == known[-1] else alike[-1])


def _is_alike(one: OffloadAbi, other: OffloadAbi) -> bool:
    """Return whether the linker wrappers of two releases read the same entries."""
    return (one.entry.fields, one.entry.sections, one.kind_codes) == (
        other.entry.fields,
        other.entry.sections,
        other.kind_codes,
    )


def cuda_requirement(targets: Iterable[Target]) -> tuple[int, int] | None:
    """Return the oldest CUDA version that supports all architectures; None without NVIDIA targets."""
    archs = [target.arch for target in targets if uses_cuda((target.kind,))]
    return first_cuda_for(archs) if archs else None


def find_link_tools(
    bundles: Sequence[tuple[Path, MobManifest]],
    places: SearchPlaces,
    runner: Runner,
    *,
    links: bool,
) -> LinkTools:
    """Search for the tools that all bundles need. Raises nothing: problems are returned as findings.

    A missing CUDA toolkit is a finding only if `links`, because -c does not need it.
    """
    findings: list[Finding] = []
    llvm = _find_llvm(bundles, places, runner, findings)
    cuda = None
    needing = [(path, one) for path, one in bundles if one.cuda is not None]
    if needing:
        try:
            cuda = choose_toolkit(places, runner)
        except ToolchainError as error:
            if links:
                findings.append(_finding(needing[0][0], error))
    rocm = _find_rocm(bundles, places, findings, links=links)
    for path, manifest in bundles:
        findings += _host_findings(path, manifest)
        for build in builds_of(manifest.kinds):
            findings += build.bundle_findings(path, manifest, LinkTools(llvm, cuda, rocm))
    return LinkTools(llvm, cuda, rocm, tuple(findings))


def _find_rocm(
    bundles: Sequence[tuple[Path, MobManifest]],
    places: SearchPlaces,
    findings: list[Finding],
    *,
    links: bool,
) -> RocmInstallation | None:
    """Return the ROCm installation. Adds a finding if a program only for AMD GPUs lacks the HIP runtime."""
    kinds = {target.kind for _, manifest in bundles for target in manifest.targets}
    needing = [path for path, one in bundles if uses_rocm(one.kinds)]
    try:
        rocm = choose_rocm_for(places, needed=bool(needing))
    except ToolchainError as error:
        findings.append(_finding(needing[0], error))
        return None
    if needing and links and not loads_hip(kinds) and (rocm is None or rocm.runtime is None):
        message = "there is no HIP runtime (libamdhip64.so) to link with"
        hint = f"apt install {load_rocm_table().runtime_package}, or name a ROCm folder with --rocm-path="
        findings.append(Finding(message, str(needing[0]), hint, ToolchainError))
    return rocm


def _find_llvm(
    bundles: Sequence[tuple[Path, MobManifest]],
    places: SearchPlaces,
    runner: Runner,
    findings: list[Finding],
) -> LlvmToolchain | None:
    """Return the newest release that can link all bundles. Adds findings if there is none."""
    found, probe = find_llvm(places), llvm_probe(runner)
    seen = [made for one in found if isinstance(made := probe(one), LlvmToolchain)]
    request = places.llvm
    fitting = [one for one in seen if request is None or request.is_satisfied_by(one.version)]
    able = [one for one in fitting if one.can(Role.LINK) and not _missing(bundles, one)]
    usable = [one for one in able if all(m.llvm.admits(one.version.major) for _, m in bundles)]
    if usable:
        newest = max(usable, key=lambda one: one.version)
        learn_given(os.environ)
        targets = {target for _, manifest in bundles for target in manifest.targets}
        learn_llvm(newest, {target.kind for target in targets}, runner)
        return newest
    if not fitting:
        findings.append(_finding(bundles[0][0], _absent(found, places, runner)))
        return None
    best = max(fitting, key=lambda one: one.version)
    findings += _llvm_findings(bundles, best)
    return best


def _absent(
    found: Sequence[LlvmInstallation], places: SearchPlaces, runner: Runner
) -> MlirOffloadError:
    try:
        choose_llvm(found, places.llvm, llvm_probe(runner), roles=(Role.LINK,))
    except MlirOffloadError as error:
        return error
    msg = "no LLVM installation found"
    return ToolchainError(msg)


def _llvm_findings(
    bundles: Sequence[tuple[Path, MobManifest]], llvm: LlvmToolchain
) -> Iterator[Finding]:
    major, table = llvm.version.major, load_llvm_table()
    for path, manifest in bundles:
        if not manifest.llvm.admits(major):
            what = (
                f"needs clang of LLVM {manifest.llvm}, here is LLVM {llvm.version} in {llvm.prefix}"
            )
            wanted = max(manifest.llvm.first, table.recommended)
            packages = " ".join(table.packages(wanted, (Role.LINK,)))
            hint = f"apt install {packages}, or bundle again for LLVM {major} (--for-clang={major})"
            yield Finding(f"the bundle {what}", str(path), hint, CompatibilityError)
    for tool in _missing(bundles, llvm):
        hint = f"apt install {table.tool(tool).package(major)}"
        message = f"LLVM {llvm.version} in {llvm.prefix} has no {tool}"
        yield Finding(message, str(bundles[0][0]), hint, ToolchainError)


def _missing(bundles: Sequence[tuple[Path, MobManifest]], llvm: LlvmToolchain) -> tuple[str, ...]:
    """Return the missing programs; llvm-link is needed if clang cannot link a library into LLVM IR."""
    missing = llvm.missing(Role.LINK)
    has_library = any(
        device_kind(device.kind).is_cpu or device.needs_libdevice
        for _, manifest in bundles
        for device in manifest.devices
    )
    if has_library and not links_library_into_ir(llvm.version.major) and not llvm.has("llvm-link"):
        return (*missing, "llvm-link")
    return missing


def _host_findings(path: Path, manifest: MobManifest) -> Iterator[Finding]:
    if manifest.host_triple != host_triple():
        message = f"the bundle is for {manifest.host_triple}, this machine is {host_triple()}"
        hint = f"bundle again on a machine like this one, or link on {manifest.host_triple}"
        yield Finding(message, str(path), hint, CompatibilityError)
    if manifest.runtime != runtime_digest():
        version = dict(manifest.producers).get("mlir-offload", "?")
        message = f"the bundle requires the runtime of mlir-offload {version}, and this is another release"
        hint = "install that release, or link with clang as README.md in the bundle says"
        yield Finding(message, str(path), hint, CompatibilityError)


def _finding(path: Path, error: MlirOffloadError) -> Finding:
    return Finding(error.message, str(path), error.hint, type(error))
