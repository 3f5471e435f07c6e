"""The step on any lowered device module."""

from __future__ import annotations

from mlir_offload.driver.step.split_file import Unwrapping
from mlir_offload.translate.mlir.module import parse_module


class Unwrap(Unwrapping, frozen=True, kw_only=True, tag="unwrap"):
    """Extract the lowered device module as a separate module for mlir-translate."""

    def _rewritten(self, text: str) -> str:
        return self.unwrapped(parse_module(text))
