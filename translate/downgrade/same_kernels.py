"""Verify that the PTX of another release has the same kernels as the LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from mlir_offload.offload.device.ptx_image import read_ptx
from mlir_offload.offload.ir_syntax import kernel_signatures
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.translate.downgrade.kernel import read_bounds

if TYPE_CHECKING:
    from mlir_offload.offload.device.kernel import DeviceKernel
    from mlir_offload.toolchain.byte_view import ByteView


def check_same_kernels(text: str, ptx: ByteView) -> None:
    """Raise CompatibilityError if the PTX lacks a kernel, a parameter or a launch bound, or calls an intrinsic."""
    made = read_ptx(ptx)
    unknown = sorted(name for name in made.undefined if name.startswith("llvm."))
    if unknown:
        msg = f"{unknown[0]} is unknown to the linking LLVM: it would be called as a function"
        raise CompatibilityError(msg)
    bounds = read_bounds(text)
    for name, parameters in kernel_signatures(text).items():
        kernel = made.kernel(name)
        lost = "the kernel"
        if kernel is not None:
            lost = _lost(kernel, len(parameters), bounds.get(name, {}))
        if lost:
            msg = f"{lost} of '{name}' is lost in the linking LLVM"
            raise CompatibilityError(msg)


def _lost(kernel: DeviceKernel, parameters: int, bounds: Mapping[str, list[int]]) -> str:
    """Return the first property of a kernel that the PTX lacks, an empty string if it is complete."""
    if kernel.parameters is not None and len(kernel.parameters) != parameters:
        return "a parameter"
    if "maxntid" in bounds and kernel.max_threads != prod(bounds["maxntid"]):
        return "the largest block"
    required = kernel.required_threads
    if "reqntid" in bounds and (required is None or prod(required) != prod(bounds["reqntid"])):
        return "the required block"
    if "minctasm" in bounds and [kernel.min_blocks] != bounds["minctasm"]:
        return "the number of blocks"
    if "maxnreg" in bounds and [kernel.max_registers] != bounds["maxnreg"]:
        return "the number of registers"
    return ""
