"""The format and runtime of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlir_offload.offload.container import fatbin as container_fatbin
from mlir_offload.offload.image import ImageForm
from mlir_offload.offload.kind_format import (
    CodeMakers,
    KindFormat,
    LinkedCodeRuntime,
    RuntimePlan,
    VendorContainers,
    library_arguments,
)
from mlir_offload.toolchain import ptx
from mlir_offload.toolchain.errors import ToolchainError
from mlir_offload.toolchain.target import Kind

if TYPE_CHECKING:
    from mlir_offload.toolchain.byte_view import ByteView
    from mlir_offload.toolchain.target import Target


class _Cuda(KindFormat):
    name = Kind.CUDA
    archs_macro = "MLIR_OFFLOAD_ARCHS"
    object_forms = {  # noqa: RUF012 (a table)
        "offload": frozenset({ImageForm.BITCODE}),
        "assembly": frozenset({ImageForm.PTX}),
        "bin": frozenset({ImageForm.EXECUTABLE_CUBIN, ImageForm.RELOCATABLE_CUBIN}),
        "fatbin": frozenset({ImageForm.FATBINARY}),
    }
    linked_code = LinkedCodeRuntime(
        ".nv_fatbin",
        ".nvFatBinSegment",
        0x466243B1,
        8,
        "__cuda",
        {
            "RegisterFatBinary": "ptr @{}(ptr)",
            "RegisterFunction": "i32 @{}(ptr, ptr, ptr, ptr, i32, ptr, ptr, ptr, ptr, ptr)",
            "UnregisterFatBinary": "void @{}(ptr)",
            "RegisterFatBinaryEnd": "void @{}(ptr)",
        },
    )
    has_plain_entries = True
    registers_by_name = True
    has_sparse = True

    def check_arch(self, target: Target, makers: CodeMakers, /) -> None:
        """Raise CompatibilityError for an architecture that LLVM or ptxas does not support."""
        for major in {makers.lowering, makers.linking}:
            ptx.ptx_isa_for(target.arch, major, makers.cuda, is_assembled=makers.is_assembled)

    def link_arguments(self, plan: RuntimePlan, /) -> tuple[str, ...]:
        """Return libcudart_static.a or libcudart.so. Raises ToolchainError if neither is found."""
        cudart = plan.library(self.name)
        if cudart is None:
            msg = "the CUDA runtime library (libcudart_static.a or libcudart.so) was not found"
            raise ToolchainError(
                msg,
                hint="install the CUDA toolkit, or 'pip install mlir-offload[cuda]', or give --cuda-path=",
            )
        return (str(cudart), "-lrt") if cudart.suffix == ".a" else library_arguments(cudart)

    def linked_images(self, file: VendorContainers, /) -> Iterator[tuple[str, ByteView | None]]:
        """Yield the images of fat binaries."""
        for fatbin in file.fatbins:
            for image in container_fatbin.read_fatbins(fatbin):
                # Reading a scrambled image, which only NVIDIA's tools can read, would raise an error.
                is_scrambled = image.compression == "scrambled"
                yield image.arch, None if is_scrambled else image.content


KIND = _Cuda()
