"""Represent bf16 as a 16-bit integer in an instruction that moves it."""

from __future__ import annotations

import re
import struct

from mlir_offload.toolchain.pattern import ir_pattern

_TYPE = ir_pattern("bfloat")
_HEXADECIMAL = ir_pattern("0xR`bits:word`")
_DECIMAL = ir_pattern("bfloat `number:float`")


def with_short_integers(line: str) -> str:
    """Replace the type bf16 by i16, and its constants by integers."""
    # The values of a phi and the second operand of an instruction have no type of their own.
    line = _HEXADECIMAL.sub(lambda match: str(int(match["bits"], 16)), line)
    return _TYPE.sub("i16", _DECIMAL.sub(_integer, line))


def _integer(match: re.Match[str]) -> str:
    (bits,) = struct.unpack("<I", struct.pack("<f", float(match["number"])))
    return f"i16 {bits >> 16}"
