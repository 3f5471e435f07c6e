"""Steps between two LLVM releases."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import Step, TextStep, read_text
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.translate.downgrade.same_kernels import check_same_kernels
from mlir_offload.translate.downgrade.text import downgrade


class Downgrade(TextStep, frozen=True, kw_only=True, tag="downgrade"):
    """Downgrade LLVM IR for an older LLVM release."""

    reader: int
    location: str = ""

    def _rewritten(self, text: str) -> str:
        return downgrade(text, reader=self.reader, location=self.location)


class SameKernels(Step, frozen=True, kw_only=True, tag="same-kernels"):
    """Check that PTX has the kernels of LLVM IR, with the same launch bounds."""

    source: Path
    assembly: Path

    def _do(self) -> None:
        with open_view(self.assembly) as view:
            check_same_kernels(read_text(self.source), view)
