"""Lowering for devices that accept SPIR-V."""

from __future__ import annotations

from collections.abc import Collection

from mlir_offload.toolchain.target import Kind
from mlir_offload.translate.kind_lowering import (
    SPIRV_FORM,
    DeviceForm,
    DeviceLowering,
    KindLowering,
)
from mlir_offload.translate.spirv.call import spirv_operations


class _Spirv(KindLowering):
    name = Kind.SYCL

    def called_operations(self) -> frozenset[str]:
        """Return the operations that are translated to calls of OpenCL functions."""
        return spirv_operations()

    def form(self, _arch: str, /) -> DeviceForm:
        """Return the form for SPIR-V."""
        return SPIRV_FORM

    def lowering(self, _needs: Collection[str], _arch: str, /) -> DeviceLowering:
        """Return the lowering variant for SPIR-V."""
        return DeviceLowering(spirv=True)


KIND = _Spirv()
