"""8-bit floating-point types with MLIR's names: the value of each bit pattern.

The formats are those of LLVM's APFloat (llvm/include/llvm/ADT/APFloat.h, fltSemantics).
"""

from __future__ import annotations

import bisect
import math
from enum import Enum, auto
from functools import cache

from msgspec import Struct


class _Special(Enum):
    """The bit patterns that are not finite numbers."""

    IEEE = auto()  # infinities, NaNs
    FN = auto()  # NaN: all ones
    FNUZ = auto()  # NaN: negative zero
    E8M0 = auto()  # no sign, no zero; NaN: all ones


class _Format(Struct, frozen=True):
    exponent_bits: int
    mantissa_bits: int
    bias: int
    special: _Special


_FORMATS = {
    "f8E5M2": _Format(5, 2, 15, _Special.IEEE),
    "f8E4M3": _Format(4, 3, 7, _Special.IEEE),
    "f8E3M4": _Format(3, 4, 3, _Special.IEEE),
    "f8E4M3FN": _Format(4, 3, 7, _Special.FN),
    "f8E5M2FNUZ": _Format(5, 2, 16, _Special.FNUZ),
    "f8E4M3FNUZ": _Format(4, 3, 8, _Special.FNUZ),
    "f8E4M3B11FNUZ": _Format(4, 3, 11, _Special.FNUZ),
    "f8E8M0FNU": _Format(8, 0, 127, _Special.E8M0),
}
FLOAT8 = tuple(_FORMATS)
_SIGN = 0x80
_ALL = 0xFF


@cache
def float8_values(name: str) -> tuple[float, ...]:
    """Return the value of each bit pattern of a format."""
    return tuple(_value(_FORMATS[name], bits) for bits in range(_ALL + 1))


def encode_float8(name: str, number: float) -> int:
    """Return the bits of the nearest value of a format, ties to even.

    Raises OverflowError if the number is outside the range of the format.
    """
    values = float8_values(name)
    if math.isnan(number):
        return next(bits for bits, value in enumerate(values) if math.isnan(value))
    has_sign = _FORMATS[name].special is not _Special.E8M0
    positive = [
        (value, bits)
        for bits, value in enumerate(values[: _SIGN if has_sign else _ALL])
        if math.isfinite(value)
    ]
    size = abs(number) if has_sign else number
    at = bisect.bisect_left(positive, (size, 0))
    near = positive[max(0, at - 1) : at + 1]
    largest, second = positive[-1][0], positive[-2][0]
    smallest = 0.0 if has_sign else positive[0][0] / 2
    if not smallest <= size < largest + (largest - second) / 2:
        msg = f"{number} is out of range for {name}"
        raise OverflowError(msg)
    _, _, bits = min((abs(value - size), bits & 1, bits) for value, bits in near)
    is_negative = has_sign and math.copysign(1, number) < 0
    # The format has one zero if the pattern of negative zero is a NaN.
    return bits | _SIGN if is_negative and not math.isnan(values[bits | _SIGN]) else bits


def _value(form: _Format, bits: int) -> float:
    if form.special is _Special.E8M0:
        return math.nan if bits == _ALL else math.ldexp(1, bits - form.bias)
    sign, rest = -1.0 if bits & _SIGN else 1.0, bits & ~_SIGN
    top = (1 << form.exponent_bits) - 1
    exponent, mantissa = rest >> form.mantissa_bits, rest & ((1 << form.mantissa_bits) - 1)
    if form.special is _Special.IEEE and exponent == top:
        return math.nan if mantissa else sign * math.inf
    if (form.special is _Special.FN and rest == _ALL ^ _SIGN) or (
        form.special is _Special.FNUZ and bits == _SIGN
    ):
        return math.nan
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - form.bias - form.mantissa_bits)
    whole = mantissa | (1 << form.mantissa_bits)
    return sign * math.ldexp(whole, exponent - form.bias - form.mantissa_bits)
