"""Operations of arith and math on integers, with exact results."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import product

from support.arithmetic_case import Case, integers, signed, width
from support.arithmetic_float import PREDICATES


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# Operations on two integers; None if the result is not defined. `s` are signed, `u` unsigned.
INTEGER: dict[str, tuple[bool, Callable[[int, int], int]]] = {
    "ceildivsi": (True, lambda a, b: -(-a // b)),
    "ceildivui": (False, lambda a, b: -(-a // b)),
    "floordivsi": (True, operator.floordiv),
    "divsi": (True, _truncated),
    "divui": (False, operator.floordiv),
    "remsi": (True, lambda a, b: a - b * _truncated(a, b)),
    "remui": (False, operator.mod),
    "maxsi": (True, max),
    "maxui": (False, max),
    "minsi": (True, min),
    "minui": (False, min),
    "addi": (True, operator.add),
    "subi": (True, operator.sub),
    "muli": (True, operator.mul),
    "andi": (True, operator.and_),
    "ori": (True, operator.or_),
    "xori": (True, operator.xor),
}
SHIFTS: dict[str, tuple[bool, Callable[[int, int], int]]] = {
    "shli": (False, operator.lshift),
    "shrsi": (True, operator.rshift),
    "shrui": (False, operator.rshift),
}
COUNTS: dict[str, Callable[[int, int], int]] = {
    "ctlz": lambda word, bits: bits - word.bit_length(),
    "cttz": lambda word, bits: (word & -word).bit_length() - 1 if word else bits,
    "ctpop": lambda word, _: word.bit_count(),
    "absi": lambda word, bits: abs(word - (word >> bits - 1 << bits)) % (1 << bits),
}


def integer_cases(kind: str) -> Iterator[Case]:
    """Yield the operations of an integer type."""
    bits = width(kind)
    size, words = 1 << bits, integers(kind)

    def case(
        name: str,
        given: Iterable[tuple[int, ...]],
        exact: Callable[[int, int], int],
        *,
        is_signed: bool,
    ) -> Case:
        rows = []
        for a, b in given:
            x, y = (signed(kind, a), signed(kind, b)) if is_signed else (a, b)
            is_undefined = y == 0 or (is_signed and (x, y) == (-(size >> 1), -1))
            if is_undefined and name.startswith(("ceildiv", "floordiv", "div", "rem")):
                continue
            rows.append(((a, b), (exact(x, y) % size,)))
        body = f"%r = arith.{name} %a, %b : ${kind}"
        return Case(f"{name}_{kind}", (kind, kind), (kind,), body, tuple(rows))

    for name, (is_signed, exact) in INTEGER.items():
        made = case(name, product(words, repeat=2), exact, is_signed=is_signed)
        yield made
        if kind == "index" and "div" in name:
            body = f"%r = index.{name.removesuffix('i')} %a, %b"
            yield made._replace(name=f"index.{name}", body=body, is_scalar=True)
    for name, (is_signed, exact) in SHIFTS.items():
        shifts = (0, 1, bits // 2, bits - 1)
        rows = tuple(
            ((a, b), (exact(signed(kind, a) if is_signed else a, b) % size,))
            for a, b in product(words, shifts)
        )
        yield Case(
            f"{name}_{kind}", (kind, kind), (kind,), f"%r = arith.{name} %a, %b : ${kind}", rows
        )
    for name, (is_signed, holds) in {
        f"{letter}{name}": (letter == "s", holds)
        for letter in ("s", "u")
        for name, holds in PREDICATES.items()
        if name not in {"eq", "ne"}
    }.items():
        pairs = tuple(product(words, repeat=2))
        rows = tuple(
            ((a, b), (int(holds(signed(kind, a), signed(kind, b)) if is_signed else holds(a, b)),))
            for a, b in pairs
        )
        yield Case(
            f"cmpi_{name}_{kind}",
            (kind, kind),
            ("i1",),
            f"%r = arith.cmpi {name}, %a, %b : ${kind}",
            rows,
        )
    for name, count in COUNTS.items():
        if kind != "index" or name != "absi":
            counted = tuple(((one,), (count(one, bits),)) for one in words)
            yield Case(
                f"{name}_{kind}",
                (kind,),
                (kind,),
                f"%r = math.{name} %a : ${kind}",
                counted,
                since=22 if kind == "index" else 19,
            )
    yield from _extended_cases(kind)


def _extended_cases(kind: str) -> Iterator[Case]:
    bits, words = width(kind), integers(kind)
    size = 1 << bits
    for name, is_signed in (("mulsi_extended", True), ("mului_extended", False)):
        rows = []
        for a, b in product(words, repeat=2):
            value = signed(kind, a) * signed(kind, b) if is_signed else a * b
            rows.append(((a, b), (value % size, (value >> bits) % size)))
        yield Case(
            f"{name}_{kind}",
            (kind, kind),
            (kind, kind),
            f"%r, %s = arith.{name} %a, %b : ${kind}",
            tuple(rows),
        )
    if kind == "index":
        return
    sums = tuple(((a, b), ((a + b) % size, (a + b) >> bits)) for a, b in product(words, repeat=2))
    yield Case(
        f"addui_extended_{kind}",
        (kind, kind),
        (kind, "i1"),
        f"%r, %s = arith.addui_extended %a, %b : ${kind}, $i1",
        sums,
    )
