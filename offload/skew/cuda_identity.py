"""Identify the programs and libraries of a CUDA toolkit, and what they support, by using them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from mlir_offload.offload.abi import fatbinary_without_image
from mlir_offload.offload.device.cubin import read_cubin
from mlir_offload.toolchain.bitcode.module import read_bitcode
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.cuda import CudaInstallation
from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.toolchain.gpu import cuda_release
from mlir_offload.toolchain.process import Command, Completed, Runner, run_checked
from mlir_offload.toolchain.ptx import load_nvptx_table
from mlir_offload.toolchain.skew.identity import (
    Evidence,
    Fact,
    Severity,
    ToolFinding,
    ToolIdentity,
    Trial,
    fact_findings,
    identified,
    problem_findings,
)
from mlir_offload.toolchain.target import sm_number
from mlir_offload.toolchain.tool import PROBE_LIMIT_S, ToolVersion, parse_version

# A PTX version that no ptxas supports. The error message contains the newest supported version.
_FUTURE = ".version 99.0\n.target sm_80\n.address_size 64\n"
_NEWEST = re.compile(r"current version is '(\d+)\.(\d+)'")
_ARCH = re.compile(r"'(sm_\d+[af]?)'")
_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)")
_ISA, _ARCHS = "reads PTX up to", "assembles for"
_OPTIONS = "takes images by"
# Tools that record their release in their output.
_SIGNED = frozenset({"ptxas", "nvlink"})
_FORMS = (("--image", "--image=profile={arch},file=probe.cubin"),
          ("--image3", "--image3=kind=elf,sm={number},file=probe.cubin"))  # fmt: skip


class CudaIdentity(Struct, frozen=True):
    """The parts of a toolkit as identified by their use, and their inconsistencies.

    `isa` is the newest PTX ISA version that ptxas reads (83 represents 8.3), 0 if it is unknown.
    """

    installation: CudaInstallation
    tools: tuple[ToolIdentity, ...]
    findings: tuple[ToolFinding, ...] = ()
    isa: int = 0
    archs: tuple[str, ...] = ()


def identify_cuda(
    runner: Runner, installation: CudaInstallation, said: ToolVersion | None, folder: Path
) -> CudaIdentity:
    """Run or read each part, with `folder` as the working directory.

    Does not raise if a program or library fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    probe = _Probe(runner, installation, folder)
    group, version = f"CUDA in {installation.root}", str(said) if said else ""
    tools = tuple(
        identified(group, name, installation.path(name), version if name in _SIGNED else "", use)
        for name, use in probe.uses().items()
        if installation.path(name) is not None
    )
    findings = tuple(_expectations(tools, said))
    facts = {fact.name: fact.value for tool in tools for fact in tool.facts}
    isa = facts.get(_ISA, "").replace(".", "")
    archs = tuple(facts.get(_ARCHS, "").split(", ")) if facts.get(_ARCHS) else ()
    return CudaIdentity(
        installation, tools, (*problem_findings(tools), *findings), int(isa or 0), archs
    )


class _Probe(Struct, frozen=True):
    runner: Runner
    installation: CudaInstallation
    folder: Path

    def uses(self) -> dict[str, Callable[[], Trial]]:
        """Return the test of each part, in an order in which the inputs of each test exist."""
        return {
            "ptxas": self._ptxas,
            "nvlink": self._nvlink,
            "fatbinary": self._fatbinary,
            "libdevice": self._libdevice,
            "cudart": self._cudart,
            "cudart_static": self._cudart_static,
        }

    def _run(self, name: str, *arguments: str) -> Completed:
        argv = (str(self.installation.path(name)), *arguments)
        return self.runner.run(Command(argv, cwd=self.folder, limit_s=PROBE_LIMIT_S))

    def _checked(self, name: str, *arguments: str) -> Completed:
        argv = (str(self.installation.path(name)), *arguments)
        return run_checked(self.runner, Command(argv, cwd=self.folder, limit_s=PROBE_LIMIT_S))

    def _ptxas(self) -> Trial:
        (self.folder / "future.ptx").write_text(_FUTURE, encoding="utf-8")
        refused = self._run("ptxas", "-c", "-arch=sm_80", "future.ptx", "-o", "future.cubin")
        found = _NEWEST.search(refused.stdout + refused.stderr)
        listed = set(_ARCH.findall(self._run("ptxas", "--help").stdout))
        archs = sorted(listed, key=lambda arch: (sm_number(arch), arch))
        if found is None or not archs:
            msg = "ptxas does not tell which PTX and which architectures it knows"
            raise ToolFailedError(msg)
        isa = f"{found[1]}.{found[2]}"
        ptx = f".version {isa}\n.target {archs[0]}\n.address_size 64\n.visible .entry probe() {{ ret; }}\n"
        (self.folder / "probe.ptx").write_text(ptx, encoding="utf-8")
        self._checked("ptxas", "-c", f"-arch={archs[0]}", "probe.ptx", "-o", "probe.cubin")
        facts = (Fact(_ISA, isa), Fact(_ARCHS, ", ".join(archs), Evidence.SAID))
        return Trial(self._signature("probe.cubin"), facts)

    def _signature(self, name: str) -> str:
        with open_view(self.folder / name) as view:
            made = read_cubin(view)
        version = _RELEASE.search(made.producer)
        return version[1] if version else made.producer

    def _arch(self) -> str:
        with open_view(self.folder / "probe.cubin") as view:
            return read_cubin(view).arch

    def _nvlink(self) -> Trial:
        self._checked("nvlink", f"-arch={self._arch()}", "probe.cubin", "-o", "linked.cubin")
        return Trial(self._signature("linked.cubin"))

    def _fatbinary(self) -> Trial:
        arch = self._arch()
        taken = [
            option
            for option, form in _FORMS
            if self._takes(form.format(arch=arch, number=arch.removeprefix("sm_")))
        ]
        return Trial("", (Fact(_OPTIONS, ", ".join(taken) or "neither --image nor --image3"),))

    def _takes(self, image: str) -> bool:
        return self._run("fatbinary", "-64", "--create=probe.fatbin", image).returncode == 0

    def _libdevice(self) -> Trial:
        with open_view(self.installation.path("libdevice") or Path()) as view:
            return Trial("", (Fact("written by", read_bitcode(view).producer),))

    def _cudart(self) -> Trial:
        release = cuda_release(str(self.installation.path("cudart")), "cudaRuntimeGetVersion")
        if release is None:
            msg = "the library cannot be loaded, or does not tell its release"
            raise ToolFailedError(msg)
        return Trial("", (Fact("serves CUDA", f"{release[0]}.{release[1]}"),))

    def _cudart_static(self) -> Trial:
        return Trial(
            "", (Fact("is", "an archive, for programs without libcudart.so", Evidence.NAMED),)
        )


def _expectations(
    tools: tuple[ToolIdentity, ...], said: ToolVersion | None
) -> Iterator[ToolFinding]:
    """Yield a finding for each part that is of another release or lacks features of its release."""
    for tool in tools:
        written = parse_version(tool.written)
        if written is not None and tool.said and str(written) != tool.said:
            yield ToolFinding(
                "TOOL006",
                Severity.ERROR,
                f"{tool.name} says that it is {tool.said}, but writes {tool.written}",
                "take ptxas, nvlink and fatbinary from one release of CUDA (--cuda-path=)",
                str(tool.path or ""),
            )
    if said is None:
        return
    expected = _expected_facts((said.major, said.minor))
    hint = "a script or another release is in its place: name the toolkit with --cuda-path="
    yield from fact_findings(tools, expected, f"CUDA {said.major}.{said.minor}", hint)


def _expected_facts(release: tuple[int, int]) -> dict[tuple[str, str], str]:
    rows = [row for row in load_nvptx_table().cuda if row.release == release]
    forms = "--image3" if release >= fatbinary_without_image() else "--image, --image3"
    expected = {("cudart", "serves CUDA"): f"{release[0]}.{release[1]}"}
    if rows:
        expected["ptxas", _ISA] = f"{rows[0].isa[-1] // 10}.{rows[0].isa[-1] % 10}"
        expected["fatbinary", _OPTIONS] = forms
    return expected
