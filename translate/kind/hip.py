"""Lowering for AMD GPUs."""

from __future__ import annotations

from collections.abc import Collection

from mlir_offload.toolchain.amdgpu import lowering_chip, wavefront_size
from mlir_offload.toolchain.ir_pattern import ir_line
from mlir_offload.toolchain.target import Kind
from mlir_offload.translate.kind_lowering import (
    ROCDL,
    DeviceForm,
    DeviceLowering,
    KindLowering,
    OtherVendor,
)


class _Hip(KindLowering):
    name = Kind.HIP
    target_dialect = "rocdl"
    target_flags = (
        "daz",
        "fast",
        "finite_only",
        "no_wave64",
        "unsafe_math",
        "unsafe_sqrt",
        "wave64",
    )
    other_vendor = OtherVendor(
        ir_line("`define|declare` `some``mark:(``ptx_kernel |@llvm.nvvm.``dotted?``)`"),
        "NVIDIA GPUs",
        "convert-gpu-to-rocdl",
    )

    def form(self, arch: str, /) -> DeviceForm:
        """Return the form for the wavefronts of the GPU."""
        return DeviceForm(ROCDL, wavefront_size(arch))

    def lowering(self, _needs: Collection[str], arch: str, /) -> DeviceLowering:
        """Return how a module is lowered for the chip."""
        return DeviceLowering(chip=lowering_chip(arch))


KIND = _Hip()
