"""Replace bf16 by 16-bit integers, because SPIR-V supports the type only in an extension.

Earlier passes have converted arithmetic to f32. Only moves of bf16 are left.
"""

from __future__ import annotations

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_pattern
from mlir_offload.translate.bfloat import with_short_integers

_COMPUTES = ir_pattern(
    " `fadd|fsub|fmul|fdiv|frem|fneg|fcmp|fpext|fptrunc|sitofp|uitofp|fptosi|fptoui|atomicrmw f``word?` "
)
_INTRINSIC = ir_pattern("@`llvm|mo`.`dotted`bf16(")


def without_bfloat(line: str) -> str:
    """Replace bf16 by i16 in an instruction that moves it.

    Raises SourceError for an instruction that computes with bf16.
    """
    if "bfloat" not in line:
        return line
    if _COMPUTES.search(line) or _INTRINSIC.search(line):
        msg = f"an operation on bf16 is not supported for spirv64: {line.strip()}"
        raise SourceError(msg, hint="compute with f32: arith.extf before, arith.truncf after")
    return with_short_integers(line)
