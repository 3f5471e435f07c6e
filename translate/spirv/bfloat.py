"""Numbers of type bf16 as integers of 16 bits: SPIR-V has the type in an extension only.

The passes before have computed with them as 32-bit numbers; what is left moves them.
"""

from __future__ import annotations

import re
import struct

from mlir_offload.toolchain.errors import SourceError

_TYPE = re.compile(r'(?<![\w%@$."-])bfloat(?![\w$."-])')
_CONSTANT = re.compile(r"\bbfloat (?P<hex>0xR[0-9A-F]{4})|\bbfloat (?P<decimal>-?\d[\d.]*e[+-]\d+)")
_COMPUTES = re.compile(
    r"(?:= | )(?:fadd|fsub|fmul|fdiv|frem|fneg|fcmp|fpext|fptrunc|sitofp|uitofp|fptosi|fptoui|atomicrmw f\w+) "
)
_INTRINSIC = re.compile(r"@(?:llvm|mo)\.\S*\.(?:v\d+)?bf16\(")


def without_bfloat(line: str) -> str:
    """Return an instruction that moves such numbers as one that moves integers.

    Raises SourceError for one that computes with them.
    """
    if "bfloat" not in line:
        return line
    if _COMPUTES.search(line) or _INTRINSIC.search(line):
        msg = f"an operation on bf16 is not supported for spirv64: {line.strip()}"
        raise SourceError(msg, hint="compute with f32: arith.extf before, arith.truncf after")
    return _TYPE.sub("i16", _CONSTANT.sub(_integer, line))


def _integer(match: re.Match[str]) -> str:
    if match["hex"]:
        return f"i16 {int(match['hex'][3:], 16)}"
    (bits,) = struct.unpack("<I", struct.pack("<f", float(match["decimal"])))
    return f"i16 {bits >> 16}"
