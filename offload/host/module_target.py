"""The target of host modules in LLVM IR: clang compiles a module of any target for this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlir_offload.offload.container.file_form import FileForm, file_form
from mlir_offload.offload.host.text import HostText
from mlir_offload.toolchain.bitcode.module import read_bitcode_modules
from mlir_offload.toolchain.byte_view import ByteView, open_view
from mlir_offload.toolchain.errors import CompatibilityError
from mlir_offload.toolchain.target import is_gpu_triple, is_host_triple

_DEVICE_HINT = (
    "make it a gpu.module with mlir-translate --import-llvm, or pass it as --device-lib=FILE"
)
_HOST_HINT = "compile its source for this machine"
_A_GPU = "a GPU"


def check_host_module(path: Path) -> None:
    """Raise CompatibilityError if the code of a file in LLVM IR is not for the CPU and system of this machine.

    A module without a triple is for any machine, unless it defines kernels of GPUs. Raises InputOutputError if
    the file cannot be read, VerificationError if bitcode is malformed.
    """
    with open_view(path) as view:
        for target in _targets(view):
            if not is_host_triple(target):
                msg = f"{path}: the module is for {target}, not for this machine"
                is_device = target == _A_GPU or is_gpu_triple(target)
                raise CompatibilityError(msg, hint=_DEVICE_HINT if is_device else _HOST_HINT)


def _targets(view: ByteView) -> Iterator[str]:
    """Yield the triple of each module that has one, and a name for GPUs if their kernels reveal them."""
    form = file_form(view)
    if form is FileForm.BITCODE:
        for module in read_bitcode_modules(view):
            if module.triple:
                yield module.triple
            elif any(function.has_kernel_convention for function in module.functions):
                yield _A_GPU
    elif form is FileForm.LLVM_IR:
        triple = HostText(view).triple
        if triple:
            yield triple
