"""Numbers of type bf16 as integers of 16 bits: SPIR-V has the type in an extension only.

The passes before have computed with them as 32-bit numbers; what is left moves them.
"""

from __future__ import annotations

import re
import struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.toolchain.pattern import ir_pattern

_TYPE = ir_pattern("bfloat")
_HEXADECIMAL = ir_pattern("bfloat 0xR`bits:word`")
# Of a phi, whose values have no type of their own.
_INCOMING = ir_pattern("[ 0xR`bits:word`,")
_DECIMAL = ir_pattern("bfloat `number:float`")
_COMPUTES = ir_pattern(
    " `fadd|fsub|fmul|fdiv|frem|fneg|fcmp|fpext|fptrunc|sitofp|uitofp|fptosi|fptoui|atomicrmw f``word?` "
)
_INTRINSIC = ir_pattern("@`llvm|mo`.`dotted`bf16(")


def without_bfloat(line: str) -> str:
    """Return an instruction that moves such numbers as one that moves integers.

    Raises SourceError for one that computes with them.
    """
    if "bfloat" not in line:
        return line
    if _COMPUTES.search(line) or _INTRINSIC.search(line):
        msg = f"an operation on bf16 is not supported for spirv64: {line.strip()}"
        raise SourceError(msg, hint="compute with f32: arith.extf before, arith.truncf after")
    line = _HEXADECIMAL.sub(lambda match: f"i16 {int(match['bits'], 16)}", line)
    line = _INCOMING.sub(lambda match: f"[ {int(match['bits'], 16)},", line)
    return _TYPE.sub("i16", _DECIMAL.sub(_integer, line))


def _integer(match: re.Match[str]) -> str:
    (bits,) = struct.unpack("<I", struct.pack("<f", float(match["number"])))
    return f"i16 {bits >> 16}"
