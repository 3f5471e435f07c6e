"""Known problems of a host that affect any program: one check for each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from mlir_offload.toolchain.cuda import CudaToolkit, inspect_cuda, probe_cuda
from mlir_offload.toolchain.errors import MlirOffloadError
from mlir_offload.toolchain.gpu import probe_cuda_driver
from mlir_offload.toolchain.inventory import Inventory
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.process import Command, Runner
from mlir_offload.toolchain.rocm import RocmInstallation
from mlir_offload.toolchain.skew.identity import Severity, ToolFinding
from mlir_offload.toolchain.tool import PROBE_LIMIT_S, Role

_OMP = re.compile(r"libomptarget\.so\.(\d+)")
_NEWER_CUDA = re.compile(r"CUDA version[^\n]*newer than the latest[^\n]*? (\d+\.\d+)")
_ROCM_ABI = re.compile(r"cannot find ROCm device library for ABI version (\d+)")
_AMD_ARCH, _NVIDIA_ARCH = "gfx90a", "sm_80"


class Machine(Struct, frozen=True):
    """The input of the checks: the inventory, the environment, and a runner for programs."""

    runner: Runner
    inventory: Inventory
    environment: Mapping[str, str]
    releases: tuple[LlvmToolchain, ...]


def machine_findings(machine: Machine) -> tuple[ToolFinding, ...]:
    """Return a finding for every problem that is present."""
    return (
        *_several_libomptargets(machine),
        *_other_ptxas_first(machine),
        *_old_driver(machine),
        *_newer_cuda_than_known(machine),
        *_rocm_without_abi(machine),
        *_no_lld(machine),
    )


def _paths(machine: Machine, variable: str) -> list[Path]:
    words = machine.environment.get(variable, "").split(os.pathsep)
    return [Path(word) for word in words if word]


def _several_libomptargets(machine: Machine) -> Iterator[ToolFinding]:
    """Find other libomptargets in LD_LIBRARY_PATH, which overrides the run path of programs."""
    default = machine.inventory.default_llvm
    found: dict[int, Path] = {}
    for folder in _paths(machine, "LD_LIBRARY_PATH"):
        for path in sorted(folder.glob("libomptarget.so*")):
            match = _OMP.match(path.resolve().name)
            if match:
                found.setdefault(int(match[1]), path)
    own = default.version.major if default else None
    strangers = {major: path for major, path in found.items() if major != own}
    if strangers:
        named = ", ".join(f"{path} of LLVM {major}" for major, path in sorted(strangers.items()))
        yield ToolFinding(
            "ENV001",
            Severity.WARNING,
            f"LD_LIBRARY_PATH has {named}; programs are linked with that of LLVM {own}",
            "take the folder out of LD_LIBRARY_PATH: programs find the right one by themselves",
            str(next(iter(strangers.values()))),
        )


def _other_ptxas_first(machine: Machine) -> Iterator[ToolFinding]:
    """Find a ptxas on PATH, which clang and others run by its plain name, that is older than the default one."""
    default = machine.inventory.default_cuda
    programs = (folder / "ptxas" for folder in _paths(machine, "PATH"))
    first = next((path for path in programs if os.access(path, os.X_OK)), None)
    if default is None or first is None:
        return
    installation = inspect_cuda(first.parent.parent, source="PATH")
    found = probe_cuda(machine.runner, installation) if installation else None
    if isinstance(found, CudaToolkit) and found.version < default.version:
        yield ToolFinding(
            "ENV002",
            Severity.WARNING,
            f"the ptxas that comes first on PATH is of CUDA {found.version}, older than {default.version}"
            f" in {default.root}",
            f"put {default.root / 'bin'} first on PATH for tools that call ptxas by its name",
            str(first),
        )


def _old_driver(machine: Machine) -> Iterator[ToolFinding]:
    """Find an NVIDIA driver older than the toolkit: it rejects the toolkit's PTX, or its cubins too."""
    driver, cuda = probe_cuda_driver(), machine.inventory.default_cuda
    if driver is None or cuda is None or driver >= (cuda.version.major, cuda.version.minor):
        return
    is_fatal = driver[0] < cuda.version.major
    yield ToolFinding(
        "ENV003",
        Severity.ERROR if is_fatal else Severity.WARNING,
        f"the driver supports CUDA {driver[0]}.{driver[1]}, the toolkit is {cuda.version}"
        + ("" if is_fatal else ": PTX of that toolkit does not run, cubins do"),
        f"install a newer driver, or use a toolkit of CUDA {driver[0]}.{driver[1]} (--cuda-path=)",
        str(cuda.root),
    )


def _newer_cuda_than_known(machine: Machine) -> Iterator[ToolFinding]:
    """Find toolkits newer than a clang supports; each version is tested with one toolkit."""
    toolkits = {
        cuda.version: cuda
        for cuda in reversed(machine.inventory.cuda)
        if isinstance(cuda, CudaToolkit) and cuda.libdevice is not None
    }
    for cuda in toolkits.values():
        answers = (
            (release, _dry_run(machine, release, "cuda", f"--cuda-path={cuda.root}", _NVIDIA_ARCH))
            for release in machine.releases
        )
        known = [
            f"clang {release.version.major} knows CUDA up to {match[1]}"
            for release, said in answers
            if (match := _NEWER_CUDA.search(said))
        ]
        if known:
            yield ToolFinding(
                "ENV004",
                Severity.NOTE,
                f"CUDA {cuda.version} is newer than what clang knows: {', '.join(known)}",
                "MLIR compiles all the same; for CUDA C++ take a newer clang or an older toolkit",
                str(cuda.root),
            )


def _rocm_without_abi(machine: Machine) -> Iterator[ToolFinding]:
    """Find device libraries without the ABI that a clang compiles for."""
    for libs in machine.inventory.rocm:
        for release in machine.releases:
            match = _ROCM_ABI.search(_rocm_answer(machine, release, libs))
            if match:
                yield ToolFinding(
                    "ENV005",
                    Severity.WARNING,
                    f"clang {release.version.major} compiles for code object version {match[1]},"
                    f" which these ROCm device libraries do not have",
                    f"install newer ROCm device libraries, or compile for one of {_versions(libs)}"
                    " (-mcode-object-version=)",
                    str(libs.bitcode),
                )


def _versions(libs: RocmInstallation) -> str:
    return ", ".join(str(number // 100) for number in libs.abi_versions) or "none"


def _rocm_answer(machine: Machine, release: LlvmToolchain, libs: RocmInstallation) -> str:
    where = f"--rocm-device-lib-path={libs.bitcode}"
    return _dry_run(machine, release, "hip", where, _AMD_ARCH)


def _dry_run(machine: Machine, release: LlvmToolchain, language: str, path: str, arch: str) -> str:
    argv = (
        *(str(release.tool("clang")), "-###", "-x", language, "-c", "/dev/null", "-nogpuinc"),
        *(path, f"--offload-arch={arch}", "--offload-device-only", "-o", "/dev/null"),
    )
    try:
        return machine.runner.run(Command(argv, limit_s=PROBE_LIMIT_S)).stderr
    except MlirOffloadError:
        return ""


def _no_lld(machine: Machine) -> Iterator[ToolFinding]:
    default = machine.inventory.default_llvm
    if default is not None and not default.has("ld.lld") and default.can(Role.LINK):
        yield ToolFinding(
            "ENV006",
            Severity.NOTE,
            f"LLVM {default.version} has no ld.lld: the linker of the system takes its place",
            f"apt install lld-{default.version.major}",
            str(default.prefix),
        )
