"""Parts of random_lanes.py: minima and maxima of special numbers, votes, and printed lines.

A special number is one of a table, selected by the lowest bits of an i32. A result is the upper half of its bits as f32;
NaN and, of `minnumf` and `maxnumf`, zeros of either sign have one number each.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from functools import reduce

from support.random_kernel import COMPARED, Expression, Lines, Run, Statement, Writer

# In the order of maximumf and minimumf, without NaN.
_ORDERED = (-math.inf, -2.0, -0.0, 0.0, 1.5, math.inf)
_NAN, _NUMBERS, _BITS = 7777, (*_ORDERED, math.nan, math.nan), 3
_TEXT = ("0xFF800000", "-2.0", "-0.0", "0.0", "1.5", "0x7F800000", "0x7FC00000", "0x7FC00000")
# The bits of infinity and NaN in types other than f32.
_WIDE = {
    "f16": {"0xFF800000": "0xFC00", "0x7F800000": "0x7C00", "0x7FC00000": "0x7E00"},
    "bf16": {"0xFF800000": "0xFF80", "0x7F800000": "0x7F80", "0x7FC00000": "0x7FC0"},
    "f64": {
        "0xFF800000": "0xFFF0000000000000",
        "0x7F800000": "0x7FF0000000000000",
        "0x7FC00000": "0x7FF8000000000000",
    },
}
EXTREMES: dict[str, tuple[Callable[[int, int], int], bool]] = {
    "minnumf": (min, False),
    "maxnumf": (max, False),
    "minimumf": (min, True),
    "maximumf": (max, True),
}
VOTES: dict[str, Callable[[list[bool]], int]] = {
    "all": all,
    "any": any,
    "uni": lambda votes: len(set(votes)) == 1,
}


def special(value: int) -> float:
    """Return the number that the lowest bits select."""
    return _NUMBERS[value % 2**_BITS]


def extreme(operation: str, values: list[float]) -> int:
    """Return the minimum or maximum of numbers as the kernel stores it."""
    choose, has_nan = EXTREMES[operation]
    places = [_place(value) for value in values if not math.isnan(value)]
    if not places or (has_nan and len(places) < len(values)):
        return _NAN
    found = _ORDERED[reduce(choose, places)]
    return 0 if found == 0 and not has_nan else struct.unpack(">h", struct.pack(">f", found)[:2])[0]


def _place(value: float) -> int:
    return next(
        n
        for n, other in enumerate(_ORDERED)
        if other == value and math.copysign(1, other) == math.copysign(1, value)
    )


class SpecialRun(Run):
    """Executes the statements."""

    def _value(self, expression: Expression, at: int) -> int:
        operation, _, kind = expression.kind.partition(".")
        if kind and operation in EXTREMES:
            value = self._value(expression.operands[0], at)
            return extreme(operation, [special(value), special(value >> _BITS)])
        return super()._value(expression, at)

    def _run_special(self, statement: Statement, given: dict[int, int]) -> None:
        operation, _, size = statement.how
        groups: dict[int, list[int]] = {}
        for at in given:
            groups.setdefault(at // 32 if size == "subgroup" else 0, []).append(at)
        for members in groups.values():
            found = extreme(operation, [special(given[at]) for at in members])
            self._store(statement, dict.fromkeys(members, found))

    def _run_vote(self, statement: Statement, given: dict[int, int]) -> None:
        test = COMPARED[statement.predicate]
        votes = {at: test(value, statement.number) for at, value in given.items()}
        groups: dict[int, list[int]] = {}
        for at in given:
            groups.setdefault(at // 32, []).append(at)
        for members in groups.values():
            if statement.how[0] == "ballot":
                bits = sum(1 << at % 32 for at in members if votes[at])
                found = bits - 2**32 * (bits >> 31)
            else:
                found = int(VOTES[statement.how[0]]([votes[at] for at in members]))
            self._store(statement, dict.fromkeys(members, found))

    def _run_print(self, statement: Statement, given: dict[int, int]) -> None:
        test = COMPARED[statement.predicate]
        for at, value in given.items():
            if test(value, statement.number):
                self.printed.append(f"printed {at} {value}")


class SpecialWriter(Writer):
    """Writes the statements in MLIR of LLVM 22."""

    def _special(self, kind: str, value: str) -> Lines:
        """Write the selection of a special number."""
        mask = yield from self._constant(2**_BITS - 1)
        which = yield from self._line(f"arith.andi {value}, {mask} : i32")
        found = ""
        for number, text in enumerate(_TEXT):
            shown = _WIDE.get(kind, {}).get(text, text)
            this = yield from self._line(f"arith.constant {shown} : {kind}")
            if not found:
                found = this
                continue
            place = yield from self._constant(number)
            test = yield from self._line(f"arith.cmpi eq, {which}, {place} : i32")
            found = yield from self._line(f"arith.select {test}, {this}, {found} : {kind}")
        return found

    def _coded(self, operation: str, kind: str, value: str) -> Lines:
        if kind != "f32":
            change = "truncf" if kind == "f64" else "extf"
            value = yield from self._line(f"arith.{change} {value} : {kind} to f32")
        bits = yield from self._line(f"arith.bitcast {value} : f32 to i32")
        sixteen = yield from self._constant(16)
        code = yield from self._line(f"arith.shrsi {bits}, {sixteen} : i32")
        zero = yield from self._line("arith.constant 0.0 : f32")
        if not EXTREMES[operation][1]:
            none = yield from self._constant(0)
            is_zero = yield from self._line(f"arith.cmpf oeq, {value}, {zero} : f32")
            code = yield from self._line(f"arith.select {is_zero}, {none}, {code} : i32")
        nan = yield from self._constant(_NAN)
        is_nan = yield from self._line(f"arith.cmpf uno, {value}, {zero} : f32")
        return (yield from self._line(f"arith.select {is_nan}, {nan}, {code} : i32"))

    def _value(self, expression: Expression) -> Lines:
        operation, _, kind = expression.kind.partition(".")
        if not kind or operation not in EXTREMES:
            return (yield from super()._value(expression))
        value = yield from self._value(expression.operands[0])
        bits = yield from self._constant(_BITS)
        other = yield from self._line(f"arith.shrsi {value}, {bits} : i32")
        one, two = (yield from self._special(kind, value)), (yield from self._special(kind, other))
        found = yield from self._line(f"arith.{operation} {one}, {two} : {kind}")
        return (yield from self._coded(operation, kind, found))

    def _write_special(self, statement: Statement, value: str) -> Iterator[str]:
        operation, kind, size = statement.how
        given = yield from self._special(kind, value)
        text = f"gpu.all_reduce {operation} {given} uniform {{}} : ({kind}) -> {kind}"
        if size == "subgroup":
            text = f"gpu.subgroup_reduce {operation} {given} : ({kind}) -> {kind}"
        found = yield from self._line(text)
        yield self._store(statement, (yield from self._coded(operation, kind, found)))

    def _compared(self, statement: Statement, value: str) -> Lines:
        bound = yield from self._constant(statement.number)
        return (yield from self._line(f"arith.cmpi {statement.predicate}, {value}, {bound} : i32"))

    def _write_vote(self, statement: Statement, value: str) -> Iterator[str]:
        test = yield from self._compared(statement, value)
        members = yield from self._constant(-1)
        (way,) = statement.how
        kind = "i32" if way == "ballot" else "i1"
        found = yield from self._line(f"nvvm.vote.sync {way} {members}, {test} -> {kind}")
        if way != "ballot":
            found = yield from self._line(f"arith.extui {found} : i1 to i32")
        yield self._store(statement, found)

    def _write_print(self, statement: Statement, value: str) -> Iterator[str]:
        test = yield from self._compared(statement, value)
        yield f"scf.if {test} {{"
        yield f'gpu.printf "printed %d %d\\0A", %n, {value} : i32, i32'
        yield "}"


def as_of_llvm_19(text: str) -> str:
    """Return a program of SpecialWriter in the syntax of LLVM 19, which has ballots only."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if "gpu.printf" in line:
            lines[number] = line.replace('\\0A",', '\\0A"')
        if "nvvm.vote.sync ballot" in line:
            changed = line.replace("nvvm.vote.sync ballot", "nvvm.vote.ballot.sync")
            lines[number] = changed.replace("-> i32", ": i32")
    return "\n".join(lines)
