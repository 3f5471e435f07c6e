"""Lowering for the CPU, whose code is generated from the lowering for an old NVIDIA GPU."""

from __future__ import annotations

from mlir_offload.toolchain.target import Kind
from mlir_offload.translate.kind_lowering import KindLowering


class CpuLowering(KindLowering):
    """The CPU."""

    name = Kind.OPENMP


KIND = CpuLowering()
