"""Devices that accept SPIR-V, such as Intel GPUs."""

from __future__ import annotations

from mlir_offload.toolchain.pattern import pattern
from mlir_offload.toolchain.target import SPIRV, SPIRV_TRIPLE, DeviceKind, Kind


class _Spirv(DeviceKind):
    name = Kind.SYCL
    word = "sycl"
    title = "devices that take SPIR-V"
    triple = SPIRV_TRIPLE
    arch_form = pattern(SPIRV)
    arch_hint = f"{SPIRV} (OpenCL)"
    example = SPIRV


KIND = _Spirv()
