"""Operations of arith and math on floating-point numbers, with exact results."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

from support.arithmetic_case import (
    FORMATS,
    Case,
    encoded,
    float_rows,
    floats,
    rounded,
    sign_key,
    width,
)

PREDICATES: dict[str, Callable[[float, float], bool]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "ne": operator.ne,
}


def _computed(
    kind: str, exact: Callable[..., Fraction], plain: Callable[..., float]
) -> Callable[..., int]:
    """Return a function that rounds an exact result; `plain` gives results of infinite numbers, and of zero."""

    def found(*values: float) -> int:
        if not all(map(math.isfinite, values)):
            return rounded(kind, plain(*values))
        made = exact(*map(Fraction, values))
        return rounded(kind, made, zero=0.0 if made else plain(*values))

    return found


def _divided(a: float, b: float) -> float:
    if b == 0:
        sign = math.copysign(1, a) * math.copysign(1, b)
        return math.nan if a == 0 or math.isnan(a) else sign * math.inf
    return a / b


def _quotient(kind: str) -> Callable[[float, float], int]:
    rest = _computed(kind, operator.truediv, _divided)
    return lambda a, b: rounded(kind, _divided(a, b)) if b == 0 or a == 0 else rest(a, b)


def _remainder(a: float, b: float) -> float:
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


def _extremum(name: str) -> Callable[[float, float], float | None]:
    best = max if name.startswith("max") else min

    def found(a: float, b: float) -> float | None:
        numbers = [one for one in (a, b) if not math.isnan(one)]
        if len(numbers) < 2:
            return math.nan if not numbers or name.endswith("imumf") else numbers[0]
        is_any = name.endswith("numf") and a == b == 0 and sign_key(a) != sign_key(b)
        return None if is_any else best(numbers, key=sign_key)

    return found


def _toward(whole: Callable[[float], float]) -> Callable[[float], float]:
    def found(value: float) -> float:
        return math.copysign(whole(value), value) if math.isfinite(value) else value

    return found


def _away(value: float) -> float:
    return float(math.floor(abs(Fraction(value)) + Fraction(1, 2)))


UNARY: dict[str, Callable[[float], float]] = {
    "arith.negf": operator.neg,
    "math.absf": abs,
    "math.floor": _toward(math.floor),
    "math.ceil": _toward(math.ceil),
    "math.trunc": _toward(math.trunc),
    "math.roundeven": _toward(round),
    "math.round": _toward(_away),
}


def float_cases(kind: str) -> Iterator[Case]:
    """Yield the operations of a floating-point type on itself."""

    def case(name: str, count: int, exact: Callable[..., int | None]) -> Case:
        listed = ", ".join(("%a", "%b", "%c")[:count])
        rows = tuple(float_rows(kind, count, exact))
        return Case(
            f"{name}_{kind}", (kind,) * count, (kind,), f"%r = {name} {listed} : ${kind}", rows
        )

    for name, of in UNARY.items():
        yield case(name, 1, lambda a, of=of: encoded(kind, of(a)))
    yield case("arith.addf", 2, _computed(kind, operator.add, operator.add))
    yield case("arith.subf", 2, _computed(kind, operator.sub, operator.sub))
    yield case("arith.mulf", 2, _computed(kind, operator.mul, operator.mul))
    yield case("arith.divf", 2, _quotient(kind))
    yield case("arith.remf", 2, lambda a, b: encoded(kind, _remainder(a, b)))
    yield case("math.copysign", 2, lambda a, b: encoded(kind, math.copysign(a, b)))
    for name in ("maximumf", "minimumf", "maxnumf", "minnumf"):
        of_two = _extremum(name)

        def extremum(
            a: float, b: float, of_two: Callable[..., float | None] = of_two
        ) -> int | None:
            made = of_two(a, b)
            return None if made is None else encoded(kind, made)

        yield case(f"arith.{name}", 2, extremum)
        yield _with_nan(kind, name)
    for name in ("math.expm1", "math.log1p"):
        tiny = (encoded(kind, sign * 2.0**-60) for sign in (1, -1)) if kind == "f64" else ()
        small = (*tiny, encoded(kind, 0.0), encoded(kind, -0.0), 1 << 16 if kind == "f32" else 1)
        rows = tuple(((one,), (one,)) for one in small)
        yield Case(f"{name}_{kind}", (kind,), (kind,), f"%r = {name} %a : ${kind}", rows)
    if kind == "f64":
        yield _complex_logarithm()
    yield _fused(kind)
    for name, holds in PREDICATES.items():
        for letter in "ou":
            yield _comparison(kind, f"{letter}{name}", holds)
    yield _comparison(kind, "ord", lambda _a, _b: True)
    yield _comparison(kind, "uno", lambda _a, _b: False)
    bits = f"i{width(kind)}"
    words = tuple(((encoded(kind, one),), (encoded(kind, one),)) for one in floats(kind)[:-1])
    yield Case(
        f"bitcast_{kind}", (kind,), (bits,), f"%r = arith.bitcast %a : ${kind} to ${bits}", words
    )
    yield Case(
        f"bitcast_{bits}_{kind}",
        (bits,),
        (kind,),
        f"%r = arith.bitcast %a : ${bits} to ${kind}",
        words,
    )
    flags = [
        ((flag, *two), (two[1 - flag],))
        for flag in (0, 1)
        for two in ((word[0][0], word[1][0] ^ 1) for word in words)
    ]
    yield Case(
        f"select_{kind}",
        ("i1", kind, kind),
        (kind,),
        f"%r = arith.select %a, %b, %c : $i1, ${kind}",
        tuple(flags),
    )


def _with_nan(kind: str, name: str) -> Case:
    """Return an operation on a number and a constant NaN."""
    nan = encoded(kind, math.nan)
    body = f"%n = arith.constant 0x{nan:X} : {kind}\n%r = arith.{name} %a, %n : {kind}"
    keeps = name in {"maxnumf", "minnumf"}
    words = (encoded(kind, one) for one in floats(kind))
    rows = tuple(((bits,), (bits if keeps else nan,)) for bits in words)
    return Case(f"arith.{name}_nan_{kind}", (kind,), (kind,), body, rows, is_scalar=True)


def _complex_logarithm() -> Case:
    body = """%n = arith.constant 0.0 : f64
%z = complex.create %a, %n : complex<f64>
%l = complex.log1p %z : complex<f64>
%r = complex.re %l : complex<f64>"""
    small = (encoded("f64", 2.0**-60),)
    return Case("complex.log1p_f64", ("f64",), ("f64",), body, ((small, small),), is_scalar=True)


def _comparison(kind: str, predicate: str, holds: Callable[[float, float], bool]) -> Case:
    def found(a: float, b: float) -> int:
        if math.isnan(a) or math.isnan(b):
            return int(predicate[0] == "u")
        return int(holds(a, b))

    rows = tuple(float_rows(kind, 2, found))
    return Case(
        f"cmpf_{predicate}_{kind}",
        (kind, kind),
        ("i1",),
        f"%r = arith.cmpf {predicate}, %a, %b : ${kind}",
        rows,
    )


def _fused(kind: str) -> Case:
    form = FORMATS[kind]
    tiny, one = 2.0 ** (form.least - form.digits + 1), 2.0 ** (form.digits - 1)
    # The product is the middle of two numbers and the third operand moves it off, and other hard sums.
    hard = [
        (one + 1, 1.5, tiny),
        (one + 1, 1.5, -tiny),
        (one + 3, -1.5, tiny),
        (one + 1, one + 1, -one),
        (one + 1, one + 1, -(one * one)),
        (2 * one - 1, 2 * one - 1, 1.0),
        (tiny, 0.5, 0.0),
        (tiny, 1.5, tiny),
        (-tiny, 0.5, tiny),
        (tiny, tiny, one),
    ]
    if kind == "f16":
        hard += [
            (6.0, 683.0, 2.0**-24),
            (3.0, 5.0, 2.0**-24),
            (1025.0, 31.0, 2.0**-24),
            (3.0, 683.0, -(2.0**-24)),
        ]
    if kind == "bf16":
        hard += [
            (17.0, 19.0, -(2.0**-30)),
            (3.0, 87.0, 2.0**-100),
            (3.0, 87.0, -(2.0**-100)),
            (2.0**127, 2.0, -255 * 2.0**120),
        ]
    edges = (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan)

    def is_exact(values: tuple[float, ...]) -> bool:
        return all(form.rounded(Fraction(one), "rz", one) == one for one in values)

    rows = []
    for a, b, c in (*filter(is_exact, hard), *product(edges, repeat=3)):
        plain = math.nan if (a == 0 and math.isinf(b)) or (b == 0 and math.isinf(a)) else a * b + c
        if all(map(math.isfinite, (a, b, c))):
            exact = Fraction(a) * Fraction(b) + Fraction(c)
            # An exact zero of terms that are not zero is positive.
            made = rounded(kind, exact, zero=plain if not exact and (a * b == 0) else 0.0)
        else:
            made = encoded(kind, plain)
        rows.append((tuple(encoded(kind, value) for value in (a, b, c)), (made,)))
    return Case(
        f"math.fma_{kind}", (kind,) * 3, (kind,), f"%r = math.fma %a, %b, %c : ${kind}", tuple(rows)
    )


def wide_cases() -> Iterator[Case]:
    """Yield the maximum and minimum in formats of 80 and 128 bits, of f64."""
    for name, kind in product(("maximumf", "minimumf"), ("f80", "f128")):
        of_two = _extremum(name)
        rows = tuple(float_rows("f64", 2, lambda a, b, of=of_two: encoded("f64", of(a, b))))
        body = f"""\
%x = arith.extf %a : f64 to {kind}
%y = arith.extf %b : f64 to {kind}
%m = arith.{name} %x, %y : {kind}
%r = arith.truncf %m : {kind} to f64"""
        yield Case(f"{name}_{kind}", ("f64", "f64"), ("f64",), body, rows, is_scalar=True)


def power_cases() -> Iterator[Case]:
    """Yield math.fpowi with exact results."""
    for kind, bits in product(("f32", "f64"), (8, 32, 64)):
        rows = []
        for base, power in product(
            (0.0, -0.0, 1.0, -2.0, 0.5, 3.0, math.inf, -math.inf, math.nan), range(-3, 6)
        ):
            if base == 3.0 and power < 0:
                continue
            if base == 0 and power < 0:
                value = math.copysign(math.inf, base) if power % 2 else math.inf
            else:
                value = base**power
            rows.append(((encoded(kind, base), power % 2**bits), (encoded(kind, value),)))
        yield Case(
            f"fpowi_{kind}_i{bits}",
            (kind, f"i{bits}"),
            (kind,),
            f"%r = math.fpowi %a, %b : ${kind}, $i{bits}",
            tuple(rows),
        )
