"""Artificial reports of `mlir-offload doctor` for tests that start no program."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.compile.kind_build import Sdk
from mlir_offload.driver.doctor.plan import Combination
from mlir_offload.driver.doctor.report import DoctorReport, Installation
from mlir_offload.driver.doctor.trial import Cell, Trial, Verdict
from mlir_offload.toolchain.llvm import LlvmToolchain
from mlir_offload.toolchain.skew.identity import Evidence, Fact, Severity, ToolFinding, ToolIdentity
from mlir_offload.toolchain.target import Kind
from mlir_offload.toolchain.tool import ToolVersion


def release(major: int, *names: str) -> LlvmToolchain:
    """Return a release with nonexistent programs: those that lower and link, and `names`."""
    programs = ("mlir-opt", "mlir-translate", "clang", "clang-linker-wrapper")
    prefix = Path(f"/llvm-{major}")
    all_names = (*programs, "clang-nvlink-wrapper", *names)
    tools = tuple((name, prefix / "bin" / name) for name in all_names)
    return LlvmToolchain(prefix, ToolVersion(major, 1, 0), tools)


def report(text: str = "plain", cells: int = 4) -> DoctorReport:
    """Return a report in which every output of a tool is this text."""
    releases = (release(22), release(19))
    sdk = Sdk(f"CUDA {text}", Path("/cuda"), "--cuda-path=")
    good, bad = Trial(Verdict.LINKS, text), Trial(Verdict.DROPS, text, text, text, 6, 1.5)
    made = tuple(
        Cell(
            Combination(Kind.CUDA, "sm_90", releases[n % 2], releases[n // 2 % 2], sdk, n == 0),
            good if n % 2 == 0 else Trial(Verdict.REFUSED, text, text, text, 4),
            bad,
            (text,) if n % 2 else (),
        )
        for n in range(cells)
    )
    fact = Fact(text, text, Evidence.MEASURED)
    tool = ToolIdentity(text, text, Path("/bin/tool"), text, text, (fact,), text)
    finding = ToolFinding("TOOL006", Severity.ERROR, text, text, text)
    missing = Installation(text, text, text, is_optional=True)
    return DoctorReport((tool,), made, (finding,), (missing,), 0)
