"""Steps on code for NVIDIA GPUs."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import DeviceIrStep, Keyed, Step, TextStep
from mlir_offload.offload.link import fatbinary_adapter
from mlir_offload.toolchain.tool import ToolVersion
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


class CodeFile(Keyed, frozen=True):
    """Code for an architecture: PTX that fat binaries get, or a linked cubin."""

    arch: str
    file: Path


class CudaDirectory(Step, frozen=True, kw_only=True, tag="cuda-directory"):
    """Put the tools of CUDA where the linker wrapper looks, `fatbinary` fitted to the wrapper."""

    ptxas: Path
    nvlink: Path
    fatbinary: Path
    cuda_version: ToolVersion
    for_clang: int
    time: int | None = None
    ptxas_arguments: tuple[str, ...] = ()
    ptx: tuple[CodeFile, ...] = ()
    cubins: tuple[CodeFile, ...] = ()
    output: Path

    def _do(self) -> None:

        tools = fatbinary_adapter.CudaTools(
            self.cuda_version,
            self.ptxas,
            self.nvlink,
            self.fatbinary,
            source_time=self.time,
            ptxas_arguments=self.ptxas_arguments,
            ptx=tuple((kept.arch, kept.file) for kept in self.ptx),
            cubins=tuple((cubin.arch, cubin.file) for cubin in self.cubins),
        )
        fatbinary_adapter.write_cuda_directory(self.output, tools, self.for_clang)
