"""Rewrite floating-point literals of textual IR for LLVM 22 and older."""

from __future__ import annotations

import re
import struct
from fractions import Fraction

from msgspec import Struct

_NUMBER = r"f0x[0-9A-F]+|[+-](?:inf|qnan|s?nan\(0x[0-9a-fA-F]+\))|-?\d+\.\d+e[+-]\d+(?![\w.])"
_KIND = "half|bfloat|float|double|x86_fp80|fp128|ppc_fp128"
# Strings and comments are skipped. A type applies to the literals up to the end of its line.
_TOKEN = re.compile(
    rf'"[^"\n]*"|;[^\n]*|(?P<end>\n)|(?<![\w.%@$-])(?:(?P<number>{_NUMBER})|(?P<kind>{_KIND})\b)'
)


class _Format(Struct, frozen=True):
    """A format: its width and the width of its fraction in bits, and the prefix of hexadecimal literals."""

    bits: int
    fraction: int
    prefix: str


# ppc_fp128 is the sum of two doubles. Only its hexadecimal literals are rewritten.
_FORMATS = {
    "half": _Format(16, 10, "0xH"),
    "bfloat": _Format(16, 7, "0xR"),
    "float": _Format(32, 23, "0x"),
    "double": _Format(64, 52, "0x"),
    "x86_fp80": _Format(80, 64, "0xK"),
    "fp128": _Format(128, 112, "0xL"),
    "ppc_fp128": _Format(128, 112, "0xM"),
}
# In older text the low half of these precedes the high half.
_HALVES = ("fp128", "ppc_fp128")
_HALF_DIGITS = 16
_WIDE = ("x86_fp80", *_HALVES)


def older_numbers(text: str) -> str:
    """Replace the literals that LLVM 22 does not parse by the form that it writes.

    The type of a literal is the floating-point type before it in its line. A literal without an older
    form is kept.
    """
    kind = ""

    def older(match: re.Match[str]) -> str:
        nonlocal kind
        if match["number"]:
            return _older(match[0], kind) if kind else match[0]
        kind = match["kind"] or ("" if match["end"] else kind)
        return match[0]

    return _TOKEN.sub(older, text)


def _older(number: str, kind: str) -> str:
    form = _FORMATS[kind]
    if number.startswith("f0x"):
        return _spelled(int(number[3:], 16), kind)
    if number.endswith("inf") or "nan" in number:
        return _spelled(_special(number, form, kind), kind)
    if kind in _WIDE:
        return number if kind == "ppc_fp128" else _spelled(_wide_bits(number, form, kind), kind)
    bits = _bits_of(float(number), kind)
    # All releases write a number that is exact in its type in the same way.
    return number if _value(bits, kind) == float(number) else _spelled(bits, kind)


def _special(number: str, form: _Format, kind: str) -> int:
    """Return the bits of an infinity, or of a NaN with its payload."""
    exponent = ((1 << (form.bits - 1 - form.fraction)) - 1) << form.fraction
    # This format has an explicit leading bit of the significand.
    if kind == "x86_fp80":
        exponent |= 1 << (form.fraction - 1)
    quiet = 1 << (form.fraction - (2 if kind == "x86_fp80" else 1))
    payload = int(number[number.index("(") + 1 : -1], 16) if "(" in number else 0
    is_quiet = "nan" in number and "snan" not in number
    sign = (number[0] == "-") << (form.bits - 1)
    return sign | exponent | payload | (quiet if is_quiet else 0)


def _wide_bits(number: str, form: _Format, kind: str) -> int:
    """Return the bits of the nearest number in a format that Python does not support."""
    sign = number.startswith("-") << (form.bits - 1)
    value = abs(Fraction(number))
    if not value:
        return sign
    # x86_fp80 has an explicit leading bit of the significand, the other formats an implicit one.
    digits = form.fraction + (kind != "x86_fp80")
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - digits
    while round(value / Fraction(2) ** exponent) >= 1 << digits:
        exponent += 1
    significand = round(value / Fraction(2) ** exponent)
    bias = (1 << (form.bits - 2 - form.fraction)) - 1
    biased = exponent + digits - 1 + bias
    return sign | biased << form.fraction | (significand & ((1 << form.fraction) - 1))


def _bits_of(value: float, kind: str) -> int:
    """Return the bits of the nearest number."""
    if kind == "double":
        return int.from_bytes(struct.pack(">d", value))
    if kind == "half":
        return int.from_bytes(struct.pack(">e", value))
    single = int.from_bytes(struct.pack(">f", value))
    if kind == "float":
        return single
    return (single + 0x7FFF + (single >> 16 & 1)) >> 16


def _value(bits: int, kind: str) -> float:
    if kind == "double":
        return float(struct.unpack(">d", bits.to_bytes(8))[0])
    if kind == "half":
        return float(struct.unpack(">e", bits.to_bytes(2))[0])
    return float(struct.unpack(">f", (bits << (16 if kind == "bfloat" else 0)).to_bytes(4))[0])


def _spelled(bits: int, kind: str) -> str:
    form = _FORMATS[kind]
    if kind == "float":
        bits, form = _widened(bits), _FORMATS["double"]
    digits = f"{bits:0{form.bits // 4}X}"
    if kind in _HALVES:
        digits = digits[_HALF_DIGITS:] + digits[:_HALF_DIGITS]
    return form.prefix + digits


def _widened(bits: int) -> int:
    """Return the bits of the double with the value of a float. NaN payloads keep their leading bits."""
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:  # noqa: PLR2004 (infinity and NaN)
        return (bits >> 31) << 63 | 0x7FF << 52 | fraction << 29
    return int.from_bytes(struct.pack(">d", _value(bits, "float")))
