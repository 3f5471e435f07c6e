"""Programs lowered with the real tools, step by step as the driver does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from llvmlite import binding

from mlir_offload.toolchain.llvm import LlvmToolchain, inspect_llvm, probe_llvm
from mlir_offload.toolchain.process import Command, ProcessRunner
from mlir_offload.toolchain.target import parse_offload_arch
from mlir_offload.translate.diagnostics import condense
from mlir_offload.translate.gpu_module import GpuModule
from mlir_offload.translate.host.module import check_host, legalize_host_ir
from mlir_offload.translate.input_pipeline import check_source
from mlir_offload.translate.kind_lowering import lowering_for
from mlir_offload.translate.legalize.split import SplitOptions, SplitProgram, split_program
from mlir_offload.translate.lower import (
    device_pipeline_command,
    host_pipeline_command,
    normalize_command,
    translate_command,
    unwrap_device,
)
from mlir_offload.translate.mlir.module import parse_module

INPUTS = Path(__file__).resolve().parent.parent / "inputs"


@dataclass(frozen=True, slots=True)
class Lowered:
    """The LLVM IR of a program: of its host and of each gpu.module."""

    program: SplitProgram
    host: str
    devices: tuple[str, ...]

    def function(self, name: str) -> str:
        """Return the text of a host function."""
        start = self.host.index(f"@{name}(", self.host.index("\ndefine "))
        return self.host[self.host.rindex("\ndefine ", 0, start) : self.host.index("\n}", start)]


@dataclass(frozen=True, slots=True)
class _Lowering:
    llvm: LlvmToolchain
    source: Path
    directory: Path
    debug: bool
    arch: str

    def run(self, command: Command, output: Path) -> str:
        done = ProcessRunner().run(command)
        if done.returncode != 0:
            raise condense(done, source=self.source)
        return output.read_text(encoding="utf-8")

    def lower(self) -> Lowered:
        content = check_source(self.source)
        normal = self.directory / "normal.mlir"
        command = normalize_command(self.llvm, self.source, normal, content=content)
        program = split_program(
            self.run(command, normal),
            SplitOptions(
                source_text=content.decode("latin-1"),
                unit_id=self.source.name,
                llvm_major=self.llvm.version.major,
            ),
        )
        devices = [self.lower_device(number, item) for number, item in enumerate(program.modules)]
        return Lowered(program, self.lower_host(program), tuple(devices))

    def lower_device(self, number: int, module: GpuModule) -> str:
        source, low, alone, text = (
            self.directory / f"device{number}{end}"
            for end in (".mlir", ".low.mlir", ".alone.mlir", ".ll")
        )
        source.write_text(module.text, encoding="utf-8")
        lowering = lowering_for(module.needs, parse_offload_arch(self.arch))
        command = device_pipeline_command(
            self.llvm, source, low, module=module, lowering=lowering, debug=self.debug
        )
        alone.write_text(unwrap_device(parse_module(self.run(command, low)), "nvptx64-nvidia-cuda"))
        return self.run(translate_command(self.llvm, alone, text), text)

    def lower_host(self, program: SplitProgram) -> str:
        source, low, text = (self.directory / f"host{end}" for end in (".mlir", ".low.mlir", ".ll"))
        source.write_text(program.host_text, encoding="utf-8")
        command = host_pipeline_command(
            self.llvm, source, low, uses_async=program.uses_async, debug=self.debug
        )
        check_host(self.run(command, low))
        return legalize_host_ir(self.run(translate_command(self.llvm, low, text), text))


Lower = Callable[..., Lowered]


@pytest.fixture(params=[pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)])
def llvm(request: pytest.FixtureRequest) -> LlvmToolchain:
    """The toolchain of each release in turn."""
    installed = inspect_llvm(Path(f"/usr/lib/llvm-{request.param}/bin"))
    assert installed is not None
    toolchain = probe_llvm(ProcessRunner(), installed)
    assert isinstance(toolchain, LlvmToolchain)
    return toolchain


@pytest.fixture
def lower(llvm: LlvmToolchain, tmp_path: Path) -> Lower:
    """Lower a file, or a text written to a file, and check that LLVM accepts what comes out."""
    return partial(_lower, llvm, tmp_path)


def _lower(
    llvm: LlvmToolchain,
    directory: Path,
    program: str | Path,
    *,
    debug: bool = False,
    arch: str = "host",
) -> Lowered:
    if isinstance(program, str):
        source = directory / "program.mlir"
        source.write_text(program, encoding="utf-8")
    else:
        source = program if program.is_absolute() else INPUTS / program
    result = _Lowering(llvm, source, directory, debug, arch).lower()
    for text in (result.host, *result.devices):
        binding.parse_assembly(text).verify()
    return result
