"""Steps on code for devices that accept SPIR-V."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import DeviceIrStep, Step, read_text
from mlir_offload.offload.device.spirv_image import check_spirv_kernels
from mlir_offload.offload.ir_syntax import kernel_signatures
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.translate.spirv.module import spirv_device_ir


class SpirvIr(DeviceIrStep, frozen=True, kw_only=True, tag="spirv-ir"):
    """Prepare the LLVM IR of a device module for the SPIR-V back end."""

    location: str = ""

    def _rewritten(self, text: str) -> str:
        return spirv_device_ir(
            text, kernels=self.kernels, llvm_major=self.llvm, keeps_functions=self.rdc
        )


class SpirvCheck(Step, frozen=True, kw_only=True, tag="spirv-check"):
    """Check that SPIR-V has the kernels, with the parameters that the host passes."""

    source: Path
    kernels: tuple[str, ...] = ()
    ir: Path
    location: str = ""

    def _do(self) -> None:
        signatures = kernel_signatures(read_text(self.ir))
        with open_view(self.source) as view:
            expected = {name: signatures[name] for name in self.kernels}
            check_spirv_kernels(view, expected, location=self.location)
