"""Kernels that a program has as functions of the LLVM dialect, marked for the back end that gets them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mlir_offload.translate.fixup.device_form import DeviceForm
from mlir_offload.translate.gpu_module import is_kernel
from mlir_offload.translate.mlir_text import OperationText, cut_operations

_ATTRIBUTES = re.compile(r"( *\}\) \{)")
_NVVM, _ROCDL = "nvvm.kernel", "rocdl.kernel"


def mark_lowered_kernels(lines: Sequence[str], form: DeviceForm) -> tuple[str, ...]:
    """Return the lines of a `gpu.module` in which each kernel has the mark that its back end knows.

    `gpu.kernel` alone is what gpu.launch_func asks for; mlir-translate makes a plain function of it.
    """
    if not any('"llvm.func"(' in line for line in lines):
        return tuple(lines)
    mark, other = (_ROCDL, _NVVM) if form.is_amdgpu else (_NVVM, _ROCDL)
    body = _marked(cut_operations(lines[1:-1]), mark, other)
    return (lines[0], *body, lines[-1])


def _marked(operations: Iterable[OperationText], mark: str, other: str) -> Iterator[str]:
    for operation in operations:
        *head, last = operation.lines
        yield from head
        if operation.name != "llvm.func" or not is_kernel(operation) or mark in last:
            yield last
        elif other in last:
            yield last.replace(other, mark, 1)
        else:
            yield _ATTRIBUTES.sub(rf"\g<1>{mark}, ", last, count=1)
