"""Values of the 8-bit floating-point formats, according to their definitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its MLIR name, exponent and mantissa bits, bias, and special codes.

    `special`: `ieee` has infinities and NaN in the largest exponent, `fn` NaN in the last code, `fnuz`
    NaN in place of negative zero. `since` is the first tested LLVM release with the format.
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    special: str
    since: int = 19


FORMATS = (
    Format("f8E5M2", 5, 2, 15, "ieee"),
    Format("f8E4M3", 4, 3, 7, "ieee", since=22),
    Format("f8E3M4", 3, 4, 3, "ieee", since=22),
    Format("f8E4M3FN", 4, 3, 7, "fn"),
    Format("f8E5M2FNUZ", 5, 2, 16, "fnuz"),
    Format("f8E4M3FNUZ", 4, 3, 8, "fnuz"),
    Format("f8E4M3B11FNUZ", 4, 3, 11, "fnuz"),
)


def decoded(code: int, of: Format) -> float:
    """Return the value of a code."""
    exponent, mantissa = (
        code >> of.mantissa & ((1 << of.exponent) - 1),
        code & ((1 << of.mantissa) - 1),
    )
    sign = -1.0 if code & 0x80 else 1.0
    if of.special == "fnuz" and code == 0x80:
        return math.nan
    if of.special == "fn" and code & 0x7F == 0x7F:
        return math.nan
    if of.special == "ieee" and exponent == (1 << of.exponent) - 1:
        return math.nan if mantissa else sign * math.inf
    return sign * _magnitude(exponent, mantissa, of)


def _magnitude(exponent: int, mantissa: int, of: Format) -> float:
    if exponent == 0:
        return mantissa * 2.0 ** (1 - of.bias - of.mantissa)
    return (1 + mantissa / (1 << of.mantissa)) * 2.0 ** (exponent - of.bias)


@cache
def _bounds(of: Format) -> tuple[tuple[float, float], ...]:
    """Return each non-negative value with the midpoint between it and the next one.

    The midpoint after the largest value is that to the next value of the pattern.
    """
    finite = [decoded(code, of) for code in range(0x80)]
    finite = [value for value in finite if math.isfinite(value)]
    after = [*finite, 2 * finite[-1] - finite[-2]]
    return tuple((low, (low + high) / 2) for low, high in pairwise(after))


@cache
def encoded(value: float, of: Format) -> int | None:
    """Return the code of the nearest value, ties to even; None for NaN."""
    if math.isnan(value):
        return None
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    for code, (_, bound) in enumerate(_bounds(of)):
        if abs(value) < bound or (abs(value) == bound and code % 2 == 0):
            return 0 if of.special == "fnuz" and code == 0 else code | sign
    return len(_bounds(of)) | sign if of.special == "ieee" else None
