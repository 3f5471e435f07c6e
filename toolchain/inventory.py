"""An inventory of the installed toolchains, their uses and missing parts, as rows for a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from mlir_offload.toolchain.cuda import (
    CudaToolkit,
    UnusableCuda,
    choose_cuda,
    load_cuda_table,
    probe_cuda,
)
from mlir_offload.toolchain.errors import CompatibilityError, ToolchainError
from mlir_offload.toolchain.gpu import AmdGpus, probe_amd_gpus, probe_gpus
from mlir_offload.toolchain.llvm import (
    LlvmInstallation,
    LlvmToolchain,
    UnusableLlvm,
    choose_llvm,
    missing_hint,
    probe_every_tool,
    probe_llvm,
)
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.rocm import RocmInstallation, load_rocm_table
from mlir_offload.toolchain.search import SearchPlaces, find_cuda, find_llvm, find_rocm
from mlir_offload.toolchain.tool import ProbedVersion, Role, load_llvm_table

_T = TypeVar("_T")
_PIP_EXTRA = "pip install 'mlir-offload[cuda]'"


class Part(StrEnum):
    """The subject of a row of the report."""

    LLVM = "LLVM"
    CUDA = "CUDA"
    ROCM = "ROCm device libraries"
    GPU = "GPU"


class Missing(Struct, frozen=True):
    """A missing or broken part, the role that requires it, and an installation hint.

    An optional part has a replacement.
    """

    name: str
    role: str
    hint: str
    reason: str = ""
    is_optional: bool = False


class InventoryRow(Struct, frozen=True):
    """One installation; if `location` is None, a part that was not found.

    `roles` are the complete roles. A nonempty `problem` is the reason why it is unusable.
    """

    part: Part
    version: str = ""
    location: Path | None = None
    source: str = ""
    roles: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    problem: str = ""
    is_default: bool = False


class ProbedLlvm(Struct, frozen=True):
    """An LLVM installation, its release, and the version that each of its programs reports."""

    installation: LlvmInstallation
    toolchain: LlvmToolchain | UnusableLlvm
    tools: tuple[tuple[str, ProbedVersion], ...] = ()


class Inventory(Struct, frozen=True):
    """All installations that were found and probed, and the defaults of a build."""

    llvm: tuple[ProbedLlvm, ...]
    cuda: tuple[CudaToolkit | UnusableCuda, ...]
    rocm: tuple[RocmInstallation, ...]
    gpus: tuple[str, ...]
    default_llvm: LlvmToolchain | None = None
    default_cuda: CudaToolkit | None = None
    amd_gpus: AmdGpus = field(default_factory=lambda: AmdGpus((), is_open=False))


def take_inventory(runner: Runner, places: SearchPlaces) -> Inventory:
    """Find all installations and query each program for its version. Broken ones do not raise."""
    llvm = {found: _probe_fully(runner, found) for found in find_llvm(places)}
    cuda = {found: probe_cuda(runner, found) for found in find_cuda(places)}
    return Inventory(
        llvm=tuple(llvm.values()),
        cuda=tuple(cuda.values()),
        rocm=find_rocm(places),
        gpus=probe_gpus(),
        default_llvm=_or_none(
            lambda: choose_llvm(tuple(llvm), places.llvm, lambda i: llvm[i].toolchain)
        ),
        default_cuda=_or_none(lambda: choose_cuda(tuple(cuda), places.cuda, lambda i: cuda[i])),
        amd_gpus=probe_amd_gpus(),
    )


def _probe_fully(runner: Runner, installation: LlvmInstallation) -> ProbedLlvm:
    toolchain = probe_llvm(runner, installation)
    if isinstance(toolchain, UnusableLlvm):
        return ProbedLlvm(installation, toolchain)
    return ProbedLlvm(installation, toolchain, probe_every_tool(runner, installation))


def _or_none(choose: Callable[[], _T]) -> _T | None:
    try:
        return choose()
    except (ToolchainError, CompatibilityError):
        return None


def inventory_rows(inventory: Inventory) -> tuple[InventoryRow, ...]:
    """Return one row for each installation, and one for each part that was not found."""
    return tuple(_rows(inventory))


def _rows(inventory: Inventory) -> Iterator[InventoryRow]:
    for probed in inventory.llvm:
        yield _llvm_row(probed, inventory.default_llvm)
    if not inventory.llvm:
        yield _no_llvm_row()
    for cuda in inventory.cuda:
        yield _cuda_row(cuda, inventory.default_cuda)
    if not inventory.cuda:
        yield InventoryRow(Part.CUDA, missing=(Missing("CUDA toolkit", "cuda", _PIP_EXTRA),))
    for number, rocm in enumerate(inventory.rocm):
        yield _rocm_row(rocm, is_default=number == 0)
    if not inventory.rocm:
        hint = f"apt install {load_rocm_table().package}"
        yield InventoryRow(Part.ROCM, missing=(Missing("ROCm device libraries", "hip", hint),))
    for number, arch in enumerate(inventory.gpus):
        yield InventoryRow(Part.GPU, version=arch, source=f"cuda:{number}", is_default=number == 0)
    amd = inventory.amd_gpus
    for number, arch in enumerate(amd.archs):
        is_first = number == 0 and not inventory.gpus
        problem = "" if amd.is_open else f"{arch}: /dev/kfd cannot be opened (group render)"
        yield InventoryRow(
            Part.GPU, arch, source=f"hip:{number}", problem=problem, is_default=is_first
        )
    if not inventory.gpus and not amd.archs:
        problem = "no NVIDIA GPU with a working driver, no AMD GPU: programs run on the CPU"
        yield InventoryRow(Part.GPU, problem=problem)


def _llvm_row(probed: ProbedLlvm, default: LlvmToolchain | None) -> InventoryRow:
    prefix, source = probed.installation.prefix, probed.installation.source
    if isinstance(probed.toolchain, UnusableLlvm):
        return InventoryRow(Part.LLVM, "", prefix, source, problem=probed.toolchain.reason)
    toolchain = probed.toolchain
    roles = [str(role) for role in Role if toolchain.can(role)]
    if toolchain.libomptarget is not None:
        roles.append("libomptarget")
    return InventoryRow(
        part=Part.LLVM,
        version=str(toolchain.version),
        location=prefix,
        source=source,
        roles=tuple(roles),
        missing=(*_missing_or_broken_tools(probed, toolchain), *_missing_runtime(toolchain)),
        is_default=toolchain == default,
    )


def _missing_or_broken_tools(probed: ProbedLlvm, toolchain: LlvmToolchain) -> tuple[Missing, ...]:
    """Return the missing and the broken tools, one entry per name."""
    tools = (*_missing_tools(toolchain), *_broken_tools(probed, toolchain))
    return tuple({missing.name: missing for missing in tools}.values())


def _missing_tools(toolchain: LlvmToolchain) -> Iterator[Missing]:
    major = toolchain.version.major
    for role in filter(toolchain.is_supported, Role):
        for row in load_llvm_table().serving(role, major):
            if not toolchain.has(row.name):
                hint = missing_hint(toolchain.prefix, toolchain.version, (row.name,))
                yield Missing(row.name, role, hint, is_optional=row.is_optional)


def _broken_tools(probed: ProbedLlvm, toolchain: LlvmToolchain) -> Iterator[Missing]:
    """Yield the programs that do not report a version, or report another release."""
    table = load_llvm_table()
    for name, answer in probed.tools:
        row = table.tool(name)
        reason = answer.reason
        if answer.version is not None and answer.version.major != toolchain.version.major:
            reason = f"it is of LLVM {answer.version}"
        if reason:
            hint = f"apt install --reinstall {row.package(toolchain.version.major)}"
            yield Missing(name, str(row.role), hint, reason)


def _missing_runtime(toolchain: LlvmToolchain) -> Iterator[Missing]:
    package = load_llvm_table().libomptarget_package(toolchain.version.major)
    if toolchain.libomptarget is None and package:
        yield Missing("libomptarget", "cpu", f"apt install {package}", is_optional=True)


def _no_llvm_row() -> InventoryRow:
    table = load_llvm_table()
    packages = " ".join(table.packages(table.recommended))
    missing = Missing("LLVM", ", ".join(Role), f"apt install {packages}")
    return InventoryRow(Part.LLVM, missing=(missing,))


def _cuda_row(cuda: CudaToolkit | UnusableCuda, default: CudaToolkit | None) -> InventoryRow:
    if isinstance(cuda, CudaToolkit):
        installation, version, problem = cuda.installation, str(cuda.version), ""
    else:
        installation, version, problem = cuda.installation, "", cuda.reason
    wheels = {part.name: part.wheel for part in load_cuda_table().parts}
    missing = tuple(
        Missing(name, "cuda", f"{_PIP_EXTRA} ({wheels[name]})") for name in installation.missing
    )
    return InventoryRow(
        part=Part.CUDA,
        version=version,
        location=installation.root,
        source=installation.source,
        roles=() if missing or problem else ("cuda",),
        missing=missing,
        problem=problem,
        is_default=cuda == default,
    )


def _rocm_row(rocm: RocmInstallation, *, is_default: bool) -> InventoryRow:
    table = load_rocm_table()
    missing = []
    if rocm.bitcode is None:
        missing.append(Missing("ROCm device libraries", "hip", f"apt install {table.package}"))
    if rocm.runtime is None:
        missing.append(Missing("HIP runtime", "hip", f"apt install {table.runtime_package}"))
    return InventoryRow(
        Part.ROCM,
        version=str(rocm.version) if rocm.version else "",
        location=rocm.bitcode or rocm.runtime,
        source=rocm.source,
        roles=() if missing else ("hip",),
        missing=tuple(missing),
        is_default=is_default,
    )
