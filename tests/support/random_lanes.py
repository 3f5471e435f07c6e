"""Random kernels with what random_kernel.py lacks: subgroups, atomics, early returns, loops with two exits, types.

Operations of a subgroup are executed by all of its threads that exist. Threads that have returned leave in
workgroup memory what they stored there last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from support.operation_probe import wrapped
from support.random_exchange import EXCHANGES, exchange
from support.random_kernel import Expression, Maker, RandomKernel, Statement
from support.random_special import EXTREMES, VOTES

SUBGROUP = 32
_BLOCKS = (
    (64, 1, 1),
    (32, 2, 1),
    (16, 4, 1),
    (8, 3, 2),
    (33, 2, 1),
    (70, 1, 1),
    (1, 5, 7),
    (80, 1, 1),
    (128, 1, 1),
)
UNARY: dict[str, Callable[[int], int]] = {
    "i8": lambda a: wrapped(a, "i8"),
    "i16": lambda a: wrapped(a, "i16"),
    "half": lambda a: (a & 0xFFFF) // 2,
    "threefold": lambda a: wrapped(3 * a, "i32"),
    "ctpop": lambda a: (a % 2**32).bit_count(),
    "absi": lambda a: wrapped(abs(a), "i32"),
    "vector": lambda a: wrapped(4 * a + 10, "i32"),
}
INTEGER_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "minsi": min,
    "maxsi": max,
    "minui": lambda a, b: min(a, b, key=lambda n: n % 2**64),
    "maxui": lambda a, b: max(a, b, key=lambda n: n % 2**64),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
FLOAT_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "minnumf": min,
    "maxnumf": max,
    "minimumf": min,
    "maximumf": max,
}
INTEGERS, FLOATS = ("i8", "i16", "i32", "i64"), ("f16", "bf16", "f32", "f64")
# The sums of a block are exact in each type.
SMALL = 3
ATOMIC: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "maxs": max,
    "mins": min,
    "maxu": lambda a, b: max(a, b, key=lambda n: n % 2**32),
    "minu": lambda a, b: min(a, b, key=lambda n: n % 2**32),
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "assign": lambda _, b: b,
}
_OF_SUBGROUP = ("shuffle", "part", "vote")
_ANYWHERE = ("atomic", "contended", "scatter", "while", "call")


class LaneMaker(Maker):
    """Generates statements.

    `has_clusters` if reductions of parts of a subgroup are supported, and votes other than ballots. Kernels without
    `has_subgroups` can be written for strips of any length. Every tenth kernel prints.
    """

    def __init__(self, seed: int, *, has_clusters: bool, has_subgroups: bool) -> None:
        super().__init__(seed, reduces=False)
        self._has_clusters = has_clusters
        self._has_subgroups = has_subgroups
        self._prints = self._random.random() < 0.1
        self._has_left = False

    def kernel(self, name: str) -> RandomKernel:
        first = Statement("exchange", 0, 1, self._expression(1))
        body = (first, *self._statements(6, 0))
        return RandomKernel(name, self._random.choice(_BLOCKS), (2, 1, 1), body)

    def _statement(self, depth: int) -> Iterator[Statement]:
        if self._random.random() < 0.4:
            yield from super()._statement(depth)
            return
        kinds = [*_ANYWHERE, *EXCHANGES]
        if not self._has_left:
            kinds += (
                [*_OF_SUBGROUP, "reduce", "special", "subgroups"] if self._has_subgroups else []
            )
        kinds += ["print", "print"] if self._prints else []
        if depth == 0:
            kinds += ["break", "break", "leave"]
        kind = self._random.choice(kinds)
        if kind in EXCHANGES:
            yield self._exchange(kind)
            return
        yield self._own_subgroup(kind) if kind in _OF_SUBGROUP else self._own(kind)

    def _exchange(self, kind: str) -> Statement:
        made = exchange(kind, self._random, self._loops, lambda: self._expression(2))
        # Threads that have left have stored their results.
        is_in_results = made.how[0] == "out" and self._has_left
        return replace(made, how=("words", *made.how[1:])) if is_in_results else made

    def _own(self, kind: str) -> Statement:
        choose, one, variable = self._random.choice, self._expression(2), self._variable()
        number = self._random.randint(0, 9)
        match kind:
            case "subgroups":
                makers = [self._own_subgroup, self._set]
                body = tuple(choose(makers)(choose(_OF_SUBGROUP)) for _ in range(number % 3 + 1))
                number = choose((0, 1, 2))
                return Statement(kind, 0, number, predicate=self._predicate(), body=body)
            case "atomic" | "contended" | "scatter" | "call" | "print":
                how = (choose(sorted(ATOMIC)),)
                return Statement(kind, variable, number, one, self._predicate(), how=how)
            case "leave":
                self._has_left = True
                return Statement(
                    kind, 0, choose((0, 5, 31, 40)), self._expression(1), self._predicate()
                )
            case "while" | "break":
                return self._own_loop(kind, number)
            case _:
                return self._own_reduction(kind)

    def _own_reduction(self, kind: str) -> Statement:
        choose, one, variable = self._random.choice, self._expression(2), self._variable()
        if kind == "reduce":
            return Statement("total", variable, expression=one, how=self._reduction())
        how = (choose(sorted(EXTREMES)), choose(FLOATS), choose(("block", "subgroup")))
        return Statement(kind, variable, expression=one, how=how)

    def _own_loop(self, kind: str, number: int) -> Statement:
        *settings, test = self._turned(lambda: (*self._settings(), self._tested(kind)))
        return Statement(
            kind,
            0,
            number,
            test.expression,
            test.predicate,
            tuple(settings),
            test.body,
            (str(test.number),),
        )

    def _tested(self, kind: str) -> Statement:
        """Return the test at which a loop ends, and what is done there."""
        bound, predicate = self._random.randint(-2, 9), self._predicate()
        test = self._expression(1)
        if kind == "break" and self._random.random() < 0.5:
            # Each thread leaves the loop in another iteration.
            own, turn = Expression("id", 4), Expression("turn", self._loops - 1)
            test, predicate = Expression("subi", operands=(own, turn)), "eq"
        return Statement("if", 0, bound, test, predicate, body=self._settings())

    def _set(self, _kind: str) -> Statement:
        return Statement("set", self._variable(), expression=self._expression(2))

    def _own_subgroup(self, kind: str) -> Statement:
        one, variable, choose = self._expression(2), self._variable(), self._random.choice
        if kind == "shuffle":
            how = (choose(("xor", "up", "down", "idx")), str(choose((32, 32, 16, 8, 4))))
            return Statement(kind, variable, self._random.randint(0, 33) % 32, one, how=how)
        if kind == "vote":
            ways = ("ballot", *sorted(VOTES)) if self._has_clusters else ("ballot",)
            bound, predicate = self._random.randint(-2, 40), self._predicate()
            return Statement(kind, variable, bound, one, predicate, how=(choose(ways),))
        size, stride = choose(((32, 1), (4, 1), (8, 4), (2, 16), (16, 2)))
        if not self._has_clusters:
            size, stride = 32, 1
        return Statement(kind, variable, 0, one, how=(*self._reduction(), str(size), str(stride)))

    def _reduction(self) -> tuple[str, str]:
        if self._random.random() < 0.5:
            return self._random.choice(sorted(INTEGER_OPERATIONS)), self._random.choice(INTEGERS)
        return self._random.choice(sorted(FLOAT_OPERATIONS)), self._random.choice(FLOATS)

    def _expression(self, depth: int) -> Expression:
        if depth and self._random.random() < 0.25:
            kind = self._random.choice((*sorted(UNARY), "dynamic", "extreme"))
            if kind == "extreme":
                kind = f"{self._random.choice(sorted(EXTREMES))}.{self._random.choice(FLOATS)}"
                # MLIR of LLVM 19 computes maxnumf of constants as maximumf, so that the operand is not constant.
                return Expression(kind, operands=(Expression("var", self._variable()),))
            return Expression(kind, operands=(self._expression(depth - 1),))
        return super()._expression(depth)


def random_lane_kernel(
    name: str, seed: int, *, has_clusters: bool, has_subgroups: bool = True
) -> RandomKernel:
    """Return the kernel of a seed."""
    maker = LaneMaker(seed, has_clusters=has_clusters, has_subgroups=has_subgroups)
    return maker.kernel(name)
