"""Libraries of device code in LLVM bitcode: whether a release of LLVM can link one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mlir_offload.offload.device_bitcode import llvm_major as major_of
from mlir_offload.toolchain.bitcode import read_bitcode
from mlir_offload.toolchain.byte_view import open_view
from mlir_offload.toolchain.errors import CompatibilityError


@cache
def check_library(path: Path, machine: str, llvm_major: int) -> None:
    """Raise CompatibilityError for a library of another device, or of a newer LLVM.

    Raises VerificationError where it is no bitcode.
    """
    with open_view(path) as view:
        module = read_bitcode(view)
    if not module.triple.startswith(f"{machine}-"):
        msg = f"the device library is for {module.triple or 'no target'}, not for {machine}"
        raise CompatibilityError(msg, hint="name the folder of another one", location=str(path))
    written_by = major_of(module.producer)
    if written_by is not None and written_by > llvm_major:
        msg = f"the device library was written by LLVM {written_by}: LLVM {llvm_major} is older"
        hint = "take device libraries of an older ROCm, or a newer LLVM with --llvm="
        raise CompatibilityError(msg, hint=hint, location=str(path))
