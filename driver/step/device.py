"""The step on any lowered device module."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import Step, read_text, write_text
from mlir_offload.translate.lower import unwrap_device


class Unwrap(Step, frozen=True, kw_only=True, tag="unwrap"):
    """Make the lowered device module a module of its own for mlir-translate."""

    source: Path
    triple: str
    rdc: bool = False
    output: Path

    def run(self) -> None:
        """Write the module."""
        made = unwrap_device(read_text(self.source), self.triple, keeps_functions=self.rdc)
        write_text(self.output, made)
