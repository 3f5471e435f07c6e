"""Names of the kind: another CPU, by its triple, in containers of kind openmp."""

from __future__ import annotations

import re

from mlir_offload.toolchain.kind.cpu import CpuKind
from mlir_offload.toolchain.target import Kind


class _Fifth(CpuKind):
    name = Kind("fifth")
    word = "fifth"
    title = "the fifth device"
    arch_form = re.compile("fifth")
    arch_hint = "'fifth' for the tests"
    example = "fifth"
    triple = "x86_64-fifth-linux-gnu"

    def holds(self, triple: str, /) -> bool:
        """Return whether the triple is its own: the CPU has images of the same offload kind."""
        return triple == self.triple


KIND = _Fifth()
