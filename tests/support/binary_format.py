"""Binary floating point with any number of digits, computed with rational numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple


class Format(NamedTuple):
    """Binary floating point: digits, least exponent, greatest exponent, how its bits are packed."""

    digits: int
    least: int
    greatest: int
    code: str

    def rounded(self, value: Fraction, mode: str, zero: float = 0.0) -> float:
        """Return the number next to a value in a direction; `zero` if it is exactly that."""
        if value == 0:
            return zero
        sign, size = (1 if value > 0 else -1), abs(value)
        bits = size.numerator.bit_length() - size.denominator.bit_length()
        exponent = max(bits, self.least)
        if Fraction(2) ** exponent > size and exponent > self.least:
            exponent -= 1
        unit = Fraction(2) ** (exponent - self.digits + 1)
        whole, rest = divmod(size, unit)
        up = {
            "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1),
            "rz": False,
            "rp": sign > 0 and rest > 0,
            "rm": sign < 0 and rest > 0,
        }[mode]
        size = (whole + up) * unit
        if size >= Fraction(2) ** (self.greatest + 1):
            largest = (2 - Fraction(2) ** (1 - self.digits)) * Fraction(2) ** self.greatest
            toward_zero = mode in {"rz", "rm" if sign > 0 else "rp"}
            return sign * (float(largest) if toward_zero else math.inf)
        return math.copysign(float(size), sign)

    def flushed(self, value: float) -> float:
        """Return zero for a subnormal number."""
        return math.copysign(0.0, value) if abs(value) < 2.0**self.least else value


F32, F64 = Format(24, -126, 127, "f"), Format(53, -1022, 1023, "d")
F16, BF16 = Format(11, -14, 15, "e"), Format(8, -126, 127, "bf16")
