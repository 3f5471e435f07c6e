"""The format and runtime of devices that accept SPIR-V. The runtime loads libOpenCL at run time."""

from __future__ import annotations

from mlir_offload.offload.kind_format import CodeMakers, KindFormat
from mlir_offload.offload.link import dropped_image
from mlir_offload.toolchain.target import Kind, Target


class _Spirv(KindFormat):
    name = Kind.SYCL
    describes_parameters = True
    links_undefined = True
    is_bundled = False

    def check_arch(self, target: Target, makers: CodeMakers, /) -> None:
        """Raise CompatibilityError if the linking LLVM has no device link for SPIR-V."""
        dropped_image.check_device_link(target, makers.linking)


KIND = _Spirv()
