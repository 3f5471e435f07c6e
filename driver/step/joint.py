"""Steps on the host text and the device modules of a program, which one mlir-opt lowers."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import Step, TextStep, read_text, write_text
from mlir_offload.toolchain.errors import ToolFailedError
from mlir_offload.translate.kind_lowering import Contraction
from mlir_offload.translate.lower import (
    bordered,
    ir_modules,
    join_program,
    separate_program,
    unwrapped,
)


class Join(TextStep, frozen=True, kw_only=True, tag="join"):
    """Join the host text and device modules of a program for one mlir-opt."""

    devices: tuple[Path, ...]

    def _rewritten(self, text: str) -> str:
        joined = join_program(text, [read_text(device) for device in self.devices])
        if joined is None:
            msg = f"{self.source} and its device modules have aliases or resources that cannot be joined"
            raise ToolFailedError(msg, hint="lower them one by one")
        return joined


class Separate(TextStep, frozen=True, kw_only=True, tag="separate"):
    """Make each part of a joined program a module of its own for mlir-translate."""

    triple: str
    rdc: bool = False
    fp_contract: Contraction | None = None

    def _rewritten(self, text: str) -> str:
        host, devices = separate_program(text)
        contraction = self.fp_contract or Contraction.ON
        texts = [
            unwrapped(device, self.triple, keeps_functions=self.rdc, contraction=contraction)
            for device in devices
        ]
        return bordered([host.render_part(host.operations), *texts])


class Part(Step, frozen=True, kw_only=True, tag="part"):
    """Write each module of LLVM IR that mlir-translate wrote of a joined program to a file."""

    source: Path
    parts: tuple[Path, ...]

    def _do(self) -> None:
        texts = ir_modules(read_text(self.source))
        if len(texts) != len(self.parts):
            msg = f"mlir-translate wrote {len(texts)} modules for {len(self.parts)}"
            hint = "report this with the output of 'mlir-translate --version'"
            raise ToolFailedError(msg, hint=hint)
        for text, path in zip(texts, self.parts, strict=True):
            write_text(path, text)
