"""Steps between two releases of LLVM."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import Step, read_text, write_text
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.translate.downgrade.same_kernels import check_same_kernels
from mlir_offload.translate.downgrade.text import downgrade


class Downgrade(Step, frozen=True, kw_only=True, tag="downgrade"):
    """Write LLVM IR in the form that an older release of LLVM reads."""

    source: Path
    reader: int
    location: str = ""
    output: Path

    def run(self) -> None:
        """Write the LLVM IR."""
        text = read_text(self.source)
        write_text(self.output, downgrade(text, reader=self.reader, location=self.location))


class SameKernels(Step, frozen=True, kw_only=True, tag="same-kernels"):
    """Check that PTX has the kernels of LLVM IR, launched alike."""

    source: Path
    assembly: Path

    def run(self) -> None:
        """Raise CompatibilityError where it has not."""
        with open_view(self.assembly) as view:
            check_same_kernels(read_text(self.source), view)
