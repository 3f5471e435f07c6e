"""Conversions of arith, with exact results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from support.arithmetic_case import (
    FORMATS,
    Case,
    decoded,
    encoded,
    float_rows,
    floats,
    integers,
    rounded,
    sign_key,
    signed,
    width,
)

# How the mode of arith.truncf is spelled, and its direction; `ra` is to nearest, of two away from zero.
MODES = {
    "": "rn",
    "to_nearest_even": "rn",
    "to_nearest_away": "ra",
    "downward": "rm",
    "upward": "rp",
    "toward_zero": "rz",
}


def _between(kind: str) -> Iterator[Fraction]:
    """Yield numbers of a type, middles of neighbors, and numbers next to those."""
    form = FORMATS[kind]
    for exponent in (
        form.least - form.digits,
        form.least - 1,
        form.least,
        -1,
        0,
        1,
        12,
        form.greatest,
    ):
        unit = Fraction(2) ** (max(exponent, form.least) - form.digits + 1)
        low = Fraction(2) ** exponent
        for number in (low, low + unit, 2 * low - unit):
            for part in (0, Fraction(1, 2), Fraction(1, 4), Fraction(3, 4), Fraction(1, 2) + Fraction(1, 2**22), Fraction(1, 2) - Fraction(1, 2**22)):  # fmt: skip
                yield number + unit * part


def _rounded_away(kind: str, value: Fraction) -> int:
    """Return the bits of the nearest number, of two the larger."""
    low, high = (FORMATS[kind].rounded(abs(value), mode) for mode in ("rz", "rp"))
    if math.isinf(high):
        size = FORMATS[kind].rounded(abs(value), "rn")
    else:
        is_low = abs(value) - Fraction(low) < Fraction(high) - abs(value)
        size = low if is_low else high
    return encoded(kind, math.copysign(size, value))


def conversion_cases() -> Iterator[Case]:
    """Yield conversions between floating-point types, and between these and integers."""
    kinds = tuple(FORMATS)
    for source, target in product(kinds, repeat=2):
        if width(source) < width(target):
            rows = tuple(float_rows(source, 1, lambda a, to=target: encoded(to, a)))
            yield Case(
                f"extf_{source}_{target}",
                (source,),
                (target,),
                f"%r = arith.extf %a : ${source} to ${target}",
                rows,
            )
        elif width(source) > width(target):
            for mode, direction in MODES.items():
                yield _truncation(source, target, mode, direction)
    for name, kind, bits in product(("sitofp", "uitofp"), kinds, (1, 8, 16, 32, 64)):
        yield _from_integer(name, kind, bits)
    for name, kind, bits in product(("fptosi", "fptoui"), kinds, (8, 16, 32, 64)):
        yield _to_integer(name, kind, bits)


def _truncation(source: str, target: str, mode: str, direction: str) -> Case:
    given = [sign * one for one in _between(target) for sign in (1, -1)]
    words = dict.fromkeys(rounded(source, one) for one in given)
    rows = []
    for word in (*words, *(encoded(source, one) for one in floats(source))):
        value = decoded(source, word)
        if not math.isfinite(value) or value == 0:
            made = encoded(target, value)
        elif direction == "ra":
            made = _rounded_away(target, Fraction(value))
        else:
            made = rounded(target, Fraction(value), direction, 0.0)
        rows.append(((word,), (made,)))
    body = f"%r = arith.truncf %a {mode} : ${source} to ${target}"
    return Case(f"truncf_{mode}_{source}_{target}", (source,), (target,), body, tuple(rows))


def _from_integer(name: str, kind: str, bits: int) -> Case:
    digits = FORMATS[kind].digits
    numbers = set(integers(f"i{bits}"))
    for top in range(digits, bits):
        middle = (1 << top) + (1 << top - digits)
        for one in (
            middle,
            middle + 1,
            middle - 1,
            middle + (2 << top - digits),
            -middle,
            -middle - 1,
        ):
            numbers.add(one % (1 << bits))
    rows = []
    for word in sorted(numbers):
        value = signed(f"i{bits}", word) if name == "sitofp" else word
        rows.append(((word,), (rounded(kind, Fraction(value)),)))
    body = f"%r = arith.{name} %a : $i{bits} to ${kind}"
    return Case(f"{name}_i{bits}_{kind}", (f"i{bits}",), (kind,), body, tuple(rows))


def _to_integer(name: str, kind: str, bits: int) -> Case:
    least, most = (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if name == "fptosi" else (0, (1 << bits) - 1)
    )
    values = {0.0, -0.0, 0.5, 1.5, 2.75, 100.0, 127.0, -0.5, -1.5, -128.0}
    values |= {decoded(kind, rounded(kind, Fraction(one), "rz")) for one in (least, most)}
    rows = tuple(
        ((encoded(kind, one),), (math.trunc(one) % (1 << bits),))
        for one in sorted(values, key=sign_key)
        if math.isfinite(one) and least <= math.trunc(one) <= most
    )
    body = f"%r = arith.{name} %a : ${kind} to $i{bits}"
    return Case(f"{name}_{kind}_i{bits}", (kind,), (f"i{bits}",), body, rows)


def index_cases() -> Iterator[Case]:
    """Yield the conversions of index."""
    for kind in ("i8", "i32", "i64"):
        for name, is_signed in (("index_cast", True), ("index_castui", False)):
            wide = tuple(
                ((one,), ((signed(kind, one) if is_signed else one) % (1 << 64),))
                for one in integers(kind)
            )
            yield Case(
                f"{name}_{kind}_index",
                (kind,),
                ("index",),
                f"%r = arith.{name} %a : ${kind} to $index",
                wide,
            )
        cut = tuple(((one,), (one % (1 << width(kind)),)) for one in integers("index"))
        yield Case(
            f"index_cast_index_{kind}",
            ("index",),
            (kind,),
            f"%r = arith.index_cast %a : $index to ${kind}",
            cut,
        )
