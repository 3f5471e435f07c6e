"""Lowering for the kind: as for the CPU."""

from __future__ import annotations

from mlir_offload.toolchain.target import Kind
from mlir_offload.translate.kind.cpu import CpuLowering


class _Fifth(CpuLowering):
    name = Kind("fifth")


KIND = _Fifth()
