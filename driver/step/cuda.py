"""Steps on code for NVIDIA GPUs."""

from __future__ import annotations

from mlir_offload.driver.step.step import DeviceIrStep, TextStep
from mlir_offload.translate.kind import cuda as cuda_lowering


class PtxTime(TextStep, frozen=True, kw_only=True, tag="ptx-time"):
    """Give the files that PTX names a time and a size, so that ptxas does not ask for their own."""

    time: int

    def _rewritten(self, text: str) -> str:
        return cuda_lowering.with_file_times(text, self.time)


class NvptxIr(DeviceIrStep, frozen=True, kw_only=True, tag="nvptx-ir"):
    """Prepare the LLVM IR of a device module for the NVPTX back end."""

    ftz: bool = False

    def _rewritten(self, text: str) -> str:
        return cuda_lowering.nvptx_device_ir(
            text,
            kernels=self.kernels,
            llvm_major=self.llvm,
            keeps_functions=self.rdc,
            flushes_subnormals=self.ftz,
        )
