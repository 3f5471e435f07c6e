"""Lowering for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Collection

from mlir_offload.toolchain.ir_pattern import ir_line
from mlir_offload.toolchain.target import Kind, sm_number
from mlir_offload.translate.kind_lowering import DeviceLowering, KindLowering, OtherVendor

# The first that has the instruction `redux`.
_REDUX_SM = 80


class _Cuda(KindLowering):
    name = Kind.CUDA
    target_dialect = "nvvm"
    # The last one, since 23, keeps the messages of ptxas beside the code, which stays the same.
    target_flags = ("fast", "ftz", "collect-compiler-diagnostics")
    other_vendor = OtherVendor(
        ir_line("`define|declare` `some``mark:(``amdgpu_kernel |@llvm.amdgcn.``dotted?``)`"),
        "AMD GPUs",
        "convert-gpu-to-nvvm",
    )

    def lowering(self, needs: Collection[str], arch: str, /) -> DeviceLowering:
        """Return how a module is lowered: with `redux` where the GPU has it."""
        return DeviceLowering(redux="redux" in needs and sm_number(arch) >= _REDUX_SM)


KIND = _Cuda()
