"""Check SPIR-V before it is linked: its kernels exist and match the arguments that the host passes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mlir_offload.offload.device.spirv import read_spirv
from mlir_offload.toolchain.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlir_offload.offload.device.kernel import DeviceKernel
    from mlir_offload.toolchain.byte_view import ByteView

_BITS = {"ptr": 64, "half": 16, "bfloat": 16, "float": 32, "double": 64}
_VECTOR = re.compile(r"<(\d+) x (\w+)>")


def check_spirv_kernels(
    view: ByteView, expected: Mapping[str, Sequence[str]], *, location: str = ""
) -> None:
    """Raise VerificationError if a kernel is missing or its parameters do not match these IR types.

    One additional parameter is allowed: dynamic workgroup memory, whose size the runtime passes.
    """
    found = {kernel.name: kernel for kernel in read_spirv(view).kernels}
    for name, types in expected.items():
        fault = _fault(found.get(name), types)
        if fault:
            msg = f"kernel '{name}' {fault} in the generated SPIR-V"
            raise VerificationError(msg, hint="report this with the input", location=location)


def _fault(kernel: DeviceKernel | None, types: Sequence[str]) -> str:
    if kernel is None:
        return "is missing"
    if kernel.parameters is None:
        return "has parameters of unknown size"
    sizes = [parameter.size_bytes for parameter in kernel.parameters]
    wanted = [_size_bytes(kind) for kind in types]
    if sizes[: len(wanted)] != wanted or len(sizes) > len(wanted) + 1:
        return f"takes parameters of {sizes} bytes instead of {wanted}"
    return ""


def _size_bytes(kind: str) -> int:
    vector = _VECTOR.fullmatch(kind)
    count, element = (int(vector[1]), vector[2]) if vector else (1, kind)
    bits = count * (_BITS.get(element) or int(element.removeprefix("i")))
    return 1 << max(0, (bits + 7) // 8 - 1).bit_length()
