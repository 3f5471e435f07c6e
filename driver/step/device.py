"""The step on any lowered device module."""

from __future__ import annotations

from mlir_offload.driver.step.step import TextStep
from mlir_offload.translate.kind_lowering import Contraction
from mlir_offload.translate.lower import unwrap_device
from mlir_offload.translate.mlir.module import parse_module


class Unwrap(TextStep, frozen=True, kw_only=True, tag="unwrap"):
    """Extract the lowered device module as a separate module for mlir-translate."""

    triple: str
    rdc: bool = False
    fp_contract: Contraction | None = None
    mark_barriers: bool = False

    def _rewritten(self, text: str) -> str:
        contraction = self.fp_contract or Contraction.ON
        return unwrap_device(
            parse_module(text),
            self.triple,
            keeps_functions=self.rdc,
            contraction=contraction,
            marks_barriers=self.mark_barriers,
        )
