"""The expected results of the kernels of random_lanes.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from support.operation_probe import wrapped
from support.random_exchange import ExchangeRun
from support.random_kernel import COMPARED, VARIABLES, Expression, Statement
from support.random_lanes import (
    ATOMIC,
    FLOAT_OPERATIONS,
    FLOATS,
    INTEGER_OPERATIONS,
    SMALL,
    SUBGROUP,
    UNARY,
)
from support.random_special import SpecialRun


class LaneRun(ExchangeRun, SpecialRun):
    """Executes one block of a kernel, statement by statement for all threads."""

    def run(self, body: Sequence[Statement], active: Sequence[int]) -> None:
        for statement in body:
            if statement.kind == "leave" and statement.expression:
                test = COMPARED[statement.predicate]
                values = {at: self._value(statement.expression, at) for at in active}
                active = [at for at in active if not test(values[at], statement.number)]
            else:
                self._statement(statement, active)

    def _statement(self, statement: Statement, active: Sequence[int]) -> None:
        run = getattr(self, f"_run_{statement.kind}", None)
        if run is None:
            super()._statement(statement, active)
        elif active:
            values: dict[int, int] = {}
            if statement.expression and statement.kind not in {"while", "break"}:
                values = {at: self._value(statement.expression, at) for at in active}
            run(statement, values or dict.fromkeys(active, 0))

    def _run_total(self, statement: Statement, given: dict[int, int]) -> None:
        self._store(statement, dict.fromkeys(given, _reduced(statement, list(given.values()))))

    def _run_shuffle(self, statement: Statement, given: dict[int, int]) -> None:
        self._store(statement, {at: self._shuffled(statement, given, at) for at in given})

    def _run_subgroups(self, statement: Statement, given: dict[int, int]) -> None:
        test = COMPARED[statement.predicate]
        self.run(statement.body, [at for at in given if test(at // SUBGROUP, statement.number)])

    def _run_scatter(self, statement: Statement, given: dict[int, int]) -> None:
        for at, value in given.items():
            self.values[at][value % VARIABLES] = statement.number

    def _run_call(self, statement: Statement, given: dict[int, int]) -> None:
        super()._statement(replace(statement, kind="exchange"), [*given])

    def _run_while(self, statement: Statement, given: dict[int, int]) -> None:
        for at in given:
            self._loop_of_thread(statement, at)

    _run_break = _run_while

    def _run_part(self, statement: Statement, given: dict[int, int]) -> None:
        size, stride = map(int, statement.how[2:])
        parts: dict[tuple[int, int], list[int]] = {}
        for at in given:
            parts.setdefault((at // (size * stride), at % stride), []).append(at)
        for members in parts.values():
            total = _reduced(statement, [given[at] for at in members])
            self._store(statement, dict.fromkeys(members, total))

    def _run_contended(self, statement: Statement, given: dict[int, int]) -> None:
        """Several threads add to one word, and then load it."""
        place = {at: at % (statement.number + 1) % len(self.words) for at in given}
        for at in given:
            self.words[at] = 0
        for at, value in given.items():
            self.words[place[at]] = wrapped(self.words[place[at]] + value, "i32")
        self._store(statement, {at: self.words[place[at]] for at in given})

    def _run_atomic(self, statement: Statement, given: dict[int, int]) -> None:
        """Each thread updates the word of another one; the variables get the old value and the thread's own word."""
        size, old = len(self.words), {}
        for at in given:
            self.words[at] = at
        for at, value in given.items():
            place = (at + statement.number) % size
            old[at] = self.words[place]
            self.words[place] = wrapped(ATOMIC[statement.how[0]](old[at], value), "i32")
        for at in given:
            self.values[at][(statement.variable + 1) % VARIABLES] = self.words[at]
        self._store(statement, old)

    def _shuffled(self, statement: Statement, given: dict[int, int], at: int) -> int:
        mode, width = statement.how[0], int(statement.how[1])
        source = _source(mode, at % SUBGROUP, statement.number)
        other = at - at % SUBGROUP + source
        if at % SUBGROUP >= width or not 0 <= source < SUBGROUP or other >= len(self.threads):
            return given[at]
        return given[other] if source < width else -777

    def _loop_of_thread(self, statement: Statement, at: int) -> None:
        expression, test = statement.expression, COMPARED[statement.predicate]
        bound = int(statement.how[0])
        if expression is None:
            return
        for turn in range(statement.number):
            self._turns[at].append(turn)
            if statement.kind == "while":
                ends = not test(self._value(expression, at), bound)
                if not ends:
                    self.run(statement.body, [at])
            else:
                self.run(statement.body, [at])
                ends = test(self._value(expression, at), bound)
                if ends:
                    self.run(statement.other, [at])
            self._turns[at].pop()
            if ends:
                return

    def _value(self, expression: Expression, at: int) -> int:
        if expression.kind == "dynamic":
            return self.values[at][self._value(expression.operands[0], at) % VARIABLES]
        if expression.kind in UNARY:
            return UNARY[expression.kind](self._value(expression.operands[0], at))
        return super()._value(expression, at)


def _source(mode: str, lane: int, offset: int) -> int:
    return {"xor": lane ^ offset, "up": lane - offset, "down": lane + offset, "idx": offset}[mode]


def _reduced(statement: Statement, values: Sequence[int]) -> int:
    operation, kind = statement.how[:2]
    if kind in FLOATS:
        return reduce(FLOAT_OPERATIONS[operation], [value & SMALL for value in values])
    combine = INTEGER_OPERATIONS[operation]
    total = reduce(lambda a, b: wrapped(combine(a, b), kind), [wrapped(v, kind) for v in values])
    return wrapped(total, "i32")
