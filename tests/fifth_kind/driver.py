"""The driver of the kind: images as for the CPU, linked without libomptarget."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.compile.context import BuildContext
from mlir_offload.driver.kind.cpu import CpuBuild
from mlir_offload.toolchain.target import Kind


class _Fifth(CpuBuild):
    name = Kind("fifth")

    def runtime_library(self, _context: BuildContext, /) -> Path | None:
        """Return none: its runtime runs the kernels by itself."""
        return None


KIND = _Fifth()
