"""The step that creates the directory of CUDA tools for the linker wrapper."""

from __future__ import annotations

from pathlib import Path

from mlir_offload.driver.step.step import Keyed, Step
from mlir_offload.offload.link.fatbinary_adapter import CudaTools, write_cuda_directory
from mlir_offload.toolchain.tool import ToolVersion


class CodeFile(Keyed, frozen=True):
    """Code for an architecture: PTX to add to fat binaries, or a linked cubin."""

    arch: str
    file: Path


class CudaDirectory(Step, frozen=True, kw_only=True, tag="cuda-directory"):
    """Create a directory with the CUDA tools, with an adapter if the wrapper does not fit fatbinary."""

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
        tools = CudaTools(
            self.cuda_version,
            self.ptxas,
            self.nvlink,
            self.fatbinary,
            source_time=self.time,
            ptxas_arguments=self.ptxas_arguments,
            ptx=tuple((kept.arch, kept.file) for kept in self.ptx),
            cubins=tuple((cubin.arch, cubin.file) for cubin in self.cubins),
        )
        write_cuda_directory(self.output, tools, self.for_clang)
