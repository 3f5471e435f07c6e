"""Collect the report of `mlir-offload doctor`: identify every tool, test every combination."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.compile.kind_build import Sdk
from mlir_offload.driver.doctor.machine import Machine, machine_findings
from mlir_offload.driver.doctor.plan import Combination, plan_combinations
from mlir_offload.driver.doctor.report import DoctorReport, Installation
from mlir_offload.driver.doctor.trial import Bench, Cell, MadeObject, Verdict
from mlir_offload.driver.project.progress import open_progress
from mlir_offload.driver.system.parallel import limited_pool
from mlir_offload.driver.system.workspace import open_workspace
from mlir_offload.offload.skew.cuda_identity import identify_cuda
from mlir_offload.offload.skew.llvm_identity import identify_llvm
from mlir_offload.offload.skew.runtime_identity import (
    identify_cuda_driver,
    identify_libomptarget,
    identify_rocm,
)
from mlir_offload.toolchain.cuda import CudaToolkit, UnusableCuda
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.inventory import Inventory, ProbedLlvm, inventory_rows
from mlir_offload.toolchain.llvm import LlvmToolchain, probe_every_tool
from mlir_offload.toolchain.process import Runner
from mlir_offload.toolchain.rocm import RocmInstallation
from mlir_offload.toolchain.skew.identity import ToolFinding, ToolIdentity, problem_findings
from mlir_offload.toolchain.target import HOST, Kind, parse_offload_arch

_ObjectKey = tuple[Kind, LlvmToolchain, Sdk | None]


class _Known(Struct, frozen=True):
    """The parts of one installation or library, and the problems found with them."""

    tools: tuple[ToolIdentity, ...]
    findings: tuple[ToolFinding, ...]


class Examination(Struct, frozen=True):
    """The inventory of this host, and the limits for testing it.

    `jobs` is the number of concurrent tasks, `limit_s` the time limit of a program in seconds. With `is_quick`,
    only the default combination is identified and tested.
    """

    runner: Runner
    inventory: Inventory
    jobs: int
    limit_s: float
    is_quick: bool = False

    def report(self, kinds: Sequence[Kind]) -> DoctorReport:
        """Identify the tools, test the combinations, check for known problems."""
        planned = plan_combinations(self.inventory, kinds)
        chosen = [one for one in planned if one.is_default or not self.is_quick]
        with open_workspace() as folder:
            known = self._identify(folder / "identity")
            cells = self._try(chosen, folder / "cells")
        native = parse_offload_arch(next(iter(self.inventory.gpus), HOST)).kind
        machine = Machine(self.runner, self.inventory, os.environ, self._releases())
        return DoctorReport(
            tuple(tool for one in known for tool in one.tools),
            cells,
            tuple(
                dict.fromkeys(
                    (*(f for one in known for f in one.findings), *machine_findings(machine))
                )
            ),
            tuple(_to_install(self.inventory)),
            exit_status(cells, native if native in kinds else None),
            self.is_quick,
        )

    def _releases(self) -> tuple[LlvmToolchain, ...]:
        releases = (probed.toolchain for probed in self._llvm())
        return tuple(one for one in releases if isinstance(one, LlvmToolchain) and one.has("clang"))

    def _llvm(self) -> list[ProbedLlvm]:
        default = self.inventory.default_llvm
        if self.is_quick and default is not None:
            return [one for one in self.inventory.llvm if one.toolchain == default]
        return list(self.inventory.llvm)

    def _cuda(self) -> list[CudaToolkit | UnusableCuda]:
        default = self.inventory.default_cuda
        if self.is_quick and default is not None:
            return [default]
        return list(self.inventory.cuda)

    def _identify(self, folder: Path) -> list[_Known]:
        """Identify all installations concurrently."""
        folder.mkdir()
        tasks: list[Callable[[], _Known]] = [
            *(partial(self._known_llvm, one, folder / f"llvm{n}") for n, one in enumerate(self._llvm())),
            *(partial(self._known_cuda, one, folder / f"cuda{n}") for n, one in enumerate(self._cuda())),
            *(partial(_known_rocm, libs) for libs in self.inventory.rocm),
            _known_driver,
        ]  # fmt: skip
        with limited_pool(self.jobs) as threads:
            return [future.result() for future in [threads.submit(task) for task in tasks]]

    def _known_llvm(self, probed: ProbedLlvm, folder: Path) -> _Known:
        installation = probed.installation
        said = probed.tools or probe_every_tool(self.runner, installation)
        identity = identify_llvm(self.runner, installation, said, folder)
        library = getattr(probed.toolchain, "libomptarget", None)
        if library is None:
            return _Known(identity.tools, identity.findings)
        runtime = identify_libomptarget(library, f"LLVM in {installation.prefix}")
        return _Known(
            (*identity.tools, runtime), (*identity.findings, *problem_findings([runtime]))
        )

    def _known_cuda(self, cuda: CudaToolkit | UnusableCuda, folder: Path) -> _Known:
        version = cuda.version if isinstance(cuda, CudaToolkit) else None
        identity = identify_cuda(self.runner, cuda.installation, version, folder)
        return _Known(identity.tools, identity.findings)

    def _try(self, combinations: Sequence[Combination], folder: Path) -> tuple[Cell, ...]:
        """Test all combinations, several concurrently, with a progress bar on a terminal."""
        folder.mkdir()
        jobs = max(1, self.jobs // max(1, len(combinations)))
        has_gpu = bool(self.inventory.gpus)
        bench = Bench(self.runner, folder, jobs, self.limit_s, has_gpu)
        with (
            open_progress(len(combinations), is_verbose=False) as progress,
            limited_pool(self.jobs) as threads,
        ):
            # Objects are submitted first, so that no trial occupies a thread while its object waits for one.
            made = {} if self.is_quick else _submit_objects(threads, bench, combinations)
            futures = {
                threads.submit(
                    bench.try_combination, combination, number, made.get(_object_key(combination))
                ): combination
                for number, combination in enumerate(combinations)
            }
            for future in as_completed(futures):
                if progress.advance is not None:
                    progress.advance(1, futures[future].label)
            return tuple(future.result() for future in futures)


def _submit_objects(
    threads: ThreadPoolExecutor, bench: Bench, combinations: Sequence[Combination]
) -> dict[_ObjectKey, Future[MadeObject]]:
    """Compile each object once, for all combinations that link it."""
    distinct = {_object_key(combination): combination for combination in combinations}
    return {
        key: threads.submit(bench.make_object, combination, number)
        for number, (key, combination) in enumerate(distinct.items())
    }


def _object_key(combination: Combination) -> _ObjectKey:
    return combination.kind, combination.producer, combination.sdk


def _known_rocm(libs: RocmInstallation) -> _Known:
    identity = identify_rocm(libs)
    return _Known((identity,), problem_findings([identity]))


def _known_driver() -> _Known:
    return _Known((identify_cuda_driver(),), ())


def _to_install(inventory: Inventory) -> Iterator[Installation]:
    """Yield missing or broken parts, each install command once."""
    seen = set()
    for row in inventory_rows(inventory):
        for missing in row.missing:
            if missing.hint not in seen:
                seen.add(missing.hint)
                part = f"{row.part} {row.version}".strip()
                purpose = f"{missing.name} ({missing.role})"
                yield Installation(part, purpose, missing.hint, missing.is_optional)


def exit_status(cells: Sequence[Cell], native: Kind | None) -> int:
    """Return 0 if the default combination works with every kind, else the status of the first failure.

    `native` is the kind of a build on this host, None if it was excluded. For other kinds, a missing SDK
    is not a failure.
    """
    default = [cell for cell in cells if cell.combination.is_default]
    kinds = {cell.combination.kind for cell in default}
    if not default or (native is not None and native not in kinds):
        return ToolchainError.exit_status
    counted = (
        cell.ours
        for cell in default
        if cell.combination.kind is native or cell.ours.verdict is not Verdict.INCOMPLETE
    )
    return next((trial.exit_status or 1 for trial in counted if not trial.verdict.is_good), 0)
