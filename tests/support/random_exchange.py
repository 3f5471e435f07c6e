"""Statements of random_lanes.py in which threads access the word of another one, `number ^ distance`.

- `partner`: a thread loads the word of its partner.
- `put`: some threads store to the word of their partner.
- `swap`: pairs of threads compare their words and exchange them.

`how` contains the memory, the type of the computation of the partner, and whether the partner always exists. The
expression of the first statement in the body is the distance, or its logarithm.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from support.random_kernel import (
    COMPARED,
    SHARED,
    Expression,
    Lines,
    Run,
    Statement,
    Writer,
)

EXCHANGES = ("partner", "put", "swap")
_MEMORY = ("words", "wide", "out")
_LARGEST = 128


def exchange(
    kind: str, choose: random.Random, loops: int, values: Callable[[], Expression]
) -> Statement:
    """Return a statement; `loops` is the number of loops around it, `values` returns an expression."""
    uniform = [
        Expression("number", choose.randrange(8)),
        Expression("argument", choose.randrange(2)),
        *(Expression("turn", n) for n in range(loops)),
    ]
    form = choose.choice(("power", "power", "any")) if kind == "partner" else "power"
    distance = values() if form == "any" else choose.choice(uniform)
    where = Statement("set", expression=distance)
    how = (choose.choice(_MEMORY), choose.choice(("i32", "index")), form)
    predicate = choose.choice(sorted(COMPARED))
    bound = choose.randint(-2, 40)
    return Statement(kind, choose.randrange(8), bound, values(), predicate, (where,), how=how)


class ExchangeRun(Run):
    """Executes the statements."""

    def _partners(self, statement: Statement, given: dict[int, int]) -> dict[int, int]:
        """Return the partner of each thread, if it exists."""
        (where,) = statement.body
        size, found = len(self.threads), {}
        for at in given:
            number = self._value(where.expression or Expression("number"), at)
            is_power = statement.how[2] == "power"
            other = at ^ (1 << (number & 7) if is_power else number & (_LARGEST - 1))
            if other < size:
                found[at] = other
        return found

    def _words_of(self, statement: Statement, given: dict[int, int]) -> list[int]:
        words = self.words if statement.how[0] == "words" else self._other(statement.how[0])
        for at, value in given.items():
            words[at] = value
        return words

    def _other(self, memory: str) -> list[int]:
        found = self.__dict__.setdefault(f"_{memory}", [0] * len(self.threads))
        return found if isinstance(found, list) else []

    def _run_partner(self, statement: Statement, given: dict[int, int]) -> None:
        partners, words = self._partners(statement, given), self._words_of(statement, given)
        self._store(statement, {at: words[partners.get(at, at)] for at in given})

    def _run_put(self, statement: Statement, given: dict[int, int]) -> None:
        partners = self._partners(statement, given)
        words = self._words_of(statement, {at: at for at in given})
        test = COMPARED[statement.predicate]
        for at, other in partners.items():
            if test(given[at], statement.number):
                words[other] = given[at]
        self._store(statement, {at: words[at] for at in given})

    def _run_swap(self, statement: Statement, given: dict[int, int]) -> None:
        partners, words = self._partners(statement, given), self._words_of(statement, given)
        test = COMPARED[statement.predicate]
        for at, other in partners.items():
            if other > at and test(words[at], words[other]):
                words[at], words[other] = words[other], words[at]
        self._store(statement, {at: words[at] for at in given})


class ExchangeWriter(Writer):
    """Writes the statements in MLIR."""

    def _partner(self, statement: Statement) -> Lines:
        """Write the index of the partner."""
        (where,) = statement.body
        distance = yield from self._value(where.expression or Expression("number"))
        mask = yield from self._constant(7 if statement.how[2] == "power" else _LARGEST - 1)
        distance = yield from self._line(f"arith.andi {distance}, {mask} : i32")
        if statement.how[2] == "power":
            one = yield from self._constant(1)
            distance = yield from self._line(f"arith.shli {one}, {distance} : i32")
        if statement.how[1] == "i32":
            other = yield from self._line(f"arith.xori %n, {distance} : i32")
            return (yield from self._line(f"arith.index_cast {other} : i32 to index"))
        wide = yield from self._line(f"arith.index_cast {distance} : i32 to index")
        return (yield from self._line(f"arith.xori %number, {wide} : index"))

    def _at(self, statement: Statement, index: str) -> Lines:
        """Write the place of the word of a thread, as it is in brackets."""
        memory, kind = statement.how[0], self._kind(statement)
        if memory != "out":
            return f"%{memory}[{index}] : memref<{self._size}x{kind}, {SHARED}>"
        place = yield from self._line(f"arith.addi %first, {index} : index")
        return f"%out[{place}] : memref<?xi32>"

    def _kind(self, statement: Statement) -> str:
        return "i64" if statement.how[0] == "wide" else "i32"

    def _get(self, statement: Statement, index: str) -> Lines:
        return (yield from self._line(f"memref.load {(yield from self._at(statement, index))}"))

    def _put(self, statement: Statement, value: str, index: str) -> Iterator[str]:
        yield f"memref.store {value}, {(yield from self._at(statement, index))}"

    def _to(self, statement: Statement, value: str) -> Lines:
        if self._kind(statement) == "i32":
            return value
        return (yield from self._line(f"arith.extsi {value} : i32 to i64"))

    def _take(self, statement: Statement, value: str) -> Iterator[str]:
        yield self._store(statement, (yield from self._narrow(statement, value)))
        if statement.how[0] == "out":
            yield "gpu.barrier"

    def _fill(self, statement: Statement, value: str) -> Iterator[str]:
        yield "gpu.barrier"
        yield from self._put(statement, value, "%number")
        yield "gpu.barrier"

    def _exists(self, other: str) -> Lines:
        return (yield from self._line(f"arith.cmpi ult, {other}, %size : index"))

    def _write_partner(self, statement: Statement, value: str) -> Iterator[str]:
        own, kind = (yield from self._to(statement, value)), self._kind(statement)
        yield from self._fill(statement, own)
        other = yield from self._partner(statement)
        if self._size % _LARGEST == 0 or (statement.number < 0 and self._size in _POWERS):
            # The partner always exists, without a branch in which it does.
            limit = yield from self._line("arith.subi %size, %i1 : index")
            masked = yield from self._line(f"arith.andi {other}, {limit} : index")
            exists = yield from self._exists(other)
            found = yield from self._get(statement, masked)
            taken = yield from self._line(f"arith.select {exists}, {found}, {own} : {kind}")
        else:
            exists, taken = (yield from self._exists(other)), self._new()
            yield f"{taken} = scf.if {exists} -> ({kind}) {{"
            yield f"scf.yield {(yield from self._get(statement, other))} : {kind}"
            yield from ("} else {", f"scf.yield {own} : {kind}", "}")
        yield from self._take(statement, taken)

    def _write_put(self, statement: Statement, value: str) -> Iterator[str]:
        own = yield from self._to(statement, value)
        yield from self._fill(statement, (yield from self._to(statement, "%n")))
        other = yield from self._partner(statement)
        exists = yield from self._exists(other)
        bound = yield from self._constant(statement.number)
        test = yield from self._line(f"arith.cmpi {statement.predicate}, {value}, {bound} : i32")
        both = yield from self._line(f"arith.andi {exists}, {test} : i1")
        yield f"scf.if {both} {{"
        yield from self._put(statement, own, other)
        yield from ("}", "gpu.barrier")
        yield from self._take(statement, (yield from self._get(statement, "%number")))

    def _write_swap(self, statement: Statement, value: str) -> Iterator[str]:
        yield from self._fill(statement, (yield from self._to(statement, value)))
        other = yield from self._partner(statement)
        exists = yield from self._exists(other)
        is_first = yield from self._line(f"arith.cmpi ugt, {other}, %number : index")
        both = yield from self._line(f"arith.andi {exists}, {is_first} : i1")
        yield f"scf.if {both} {{"
        one = yield from self._get(statement, "%number")
        two = yield from self._get(statement, other)
        left, right = (
            (yield from self._narrow(statement, one)),
            (yield from self._narrow(statement, two)),
        )
        test = yield from self._line(f"arith.cmpi {statement.predicate}, {left}, {right} : i32")
        yield f"scf.if {test} {{"
        yield from self._put(statement, two, "%number")
        yield from self._put(statement, one, other)
        yield from ("}", "}", "gpu.barrier")
        yield from self._take(statement, (yield from self._get(statement, "%number")))

    def _narrow(self, statement: Statement, value: str) -> Lines:
        if self._kind(statement) == "i32":
            return value
        return (yield from self._line(f"arith.trunci {value} : i64 to i32"))


_POWERS = frozenset(2**n for n in range(11))
