"""Kernels that a program has as functions of the LLVM dialect, marked for the back end that gets them."""

from __future__ import annotations

from mlir_offload.translate.device_form import DeviceForm
from mlir_offload.translate.gpu_module import is_kernel
from mlir_offload.translate.mlir.attribute import Attribute
from mlir_offload.translate.mlir.operation import Operation

_NVVM, _ROCDL = "nvvm.kernel", "rocdl.kernel"


def mark_lowered_kernels(module: Operation, form: DeviceForm) -> None:
    """Give each kernel of a `gpu.module` the mark that its back end knows.

    `gpu.kernel` alone is what gpu.launch_func asks for; mlir-translate makes a plain function of it.
    """
    mark, other = (_ROCDL, _NVVM) if form.is_amdgpu else (_NVVM, _ROCDL)
    for operation in module.operations:
        if operation.name == "llvm.func" and is_kernel(operation) and not operation.has(mark):
            marks = {mark: Attribute("")} if not operation.has(other) else {}
            others = operation.attributes.items()
            operation.signature.attributes = marks | {
                mark if name == other else name: value for name, value in others
            }
