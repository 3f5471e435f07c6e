"""Steps on code for AMD GPUs."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step import fat_binary
from mlir_offload.driver.step.step import DeviceIrStep, PackagedImage, Step
from mlir_offload.offload.device.amdgpu_image import check_resolved
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.translate.kind.hip import amdgpu_device_ir


class AmdgpuIr(DeviceIrStep, frozen=True, kw_only=True, tag="amdgpu-ir"):
    """Prepare the LLVM IR of a device module for the AMDGPU back end."""

    ftz: bool = False
    code_object: int

    def _rewritten(self, text: str) -> str:
        return amdgpu_device_ir(
            text,
            kernels=self.kernels,
            llvm_major=self.llvm,
            code_object=self.code_object,
            keeps_functions=self.rdc,
            flushes_subnormals=self.ftz,
        )


class AmdgpuCheck(Step, frozen=True, kw_only=True, tag="amdgpu-check"):
    """Check that an image has no undefined symbols that its device libraries lack."""

    source: Path
    arch: str
    libraries: tuple[str, ...] = ()
    location: str = ""

    def _do(self) -> None:
        with open_view(self.source) as view:
            check_resolved(view, arch=self.arch, libraries=self.libraries, location=self.location)


class HipFatBinary(Step, frozen=True, kw_only=True, tag="hip-fat-binary"):
    """Write linked code objects to one bundle, as the HIP runtime loads it."""

    images: tuple[PackagedImage, ...]
    for_clang: int
    output: Path

    def _do(self) -> None:

        files = [(image.argument, str(image.file)) for image in self.images]
        fat_binary.write_fat_binary(files, self.for_clang, self.output, method="")
