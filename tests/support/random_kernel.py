"""Random kernels with barriers in nested loops and conditions, and their expected results.

A kernel has eight variables per thread. Between barriers, no thread reads what another one writes, so that
the expected result can be computed one statement at a time. Kernels may also reduce over the block or the
subgroup; then a CPU thread needs a fiber.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod

from support.operation_probe import Dim3, Thread, wrapped

VARIABLES = 8
Lines = Generator[str, None, str]
SHARED = "#gpu.address_space<workgroup>"
_BINARY: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "xori": lambda a, b: a ^ b,
    "andi": lambda a, b: a & b,
    "maxsi": max,
    "minsi": min,
}
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "slt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "sge": lambda a, b: a >= b,
    "ult": lambda a, b: a % 2**32 < b % 2**32,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """An operation of `arith`, a constant, or a value of the thread: `var`, `id`, `turn` of a loop."""

    kind: str
    number: int = 0
    operands: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: `set`, `exchange`, `reduce`, `for`, `repeat` or `if`.

    The variable is assigned the expression's value, or the value of the thread at distance `number`, or, if
    `number` is negative, that of one thread for all. A loop has `number` iterations, or as many as the
    expression says. `how` is for the statements of random_lanes.py.
    """

    kind: str
    variable: int = 0
    number: int = 0
    expression: Expression | None = None
    predicate: str = "slt"
    body: tuple[Statement, ...] = ()
    other: tuple[Statement, ...] = ()
    how: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RandomKernel:
    """A kernel, and the sizes of its block and grid."""

    name: str
    block: Dim3
    grid: Dim3
    body: tuple[Statement, ...]


class Maker:
    """Generates statements; `depth` is the nesting depth, `_loops` that of loops."""

    def __init__(self, seed: int, *, reduces: bool) -> None:
        self._random = random.Random(seed)  # noqa: S311 (no secret)
        self._kinds = [
            "set",
            "set",
            "exchange",
            "exchange",
            "for",
            "repeat",
            "if",
            "choose",
            "part",
        ]
        self._kinds += ["reduce", "reduce"] if reduces else []
        self._loops = 0

    def kernel(self, name: str) -> RandomKernel:
        block = self._random.choice([(16, 1, 1), (5, 3, 2), (33, 1, 1), (8, 8, 1), (1, 1, 40)])
        grid = self._random.choice([(2, 1, 1), (1, 2, 2)])
        return RandomKernel(name, block, grid, self._statements(5, 0))

    def _statements(self, most: int, depth: int) -> tuple[Statement, ...]:
        return tuple(
            statement
            for _ in range(self._random.randint(1, most))
            for statement in self._statement(depth)
        )

    def _statement(self, depth: int) -> Iterator[Statement]:
        """Generate a statement that every thread of the block reaches."""
        kind = self._random.choice(self._kinds if depth < 3 else self._kinds[:4])
        variable, one = self._variable(), self._expression(2)
        match kind:
            case "set" | "reduce":
                yield Statement(kind, variable, expression=one)
            case "exchange":
                yield Statement(kind, variable, self._random.randint(-3, 20), one)
            case "for":
                turns = self._random.randint(0, 3)
                yield Statement(
                    "for", 0, turns, body=self._turned(lambda: self._statements(3, depth + 1))
                )
            case "repeat" | "if":
                # The number is that of one thread for all: the compiler cannot know that it is uniform.
                yield Statement("exchange", variable, -1 - self._random.randint(0, 9), one)
                agreed = Expression("var", variable)
                yield self._agreed(kind, agreed, depth)
            case "choose":
                yield Statement("if", 0, 0, self._argument(), "eq", *self._branches(depth))
            case _:
                yield self._apart()

    def _agreed(self, kind: str, agreed: Expression, depth: int) -> Statement:
        if kind == "repeat":
            return Statement(
                "repeat",
                expression=agreed,
                body=self._turned(lambda: self._statements(3, depth + 1)),
            )
        bound = self._random.randint(-4, 4)
        return Statement("if", 0, bound, agreed, self._predicate(), *self._branches(depth))

    def _branches(self, depth: int) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
        other = self._statements(2, depth + 1) if self._random.random() < 0.6 else ()
        return self._statements(3, depth + 1), other

    def _apart(self) -> Statement:
        """Generate a statement with divergent control flow and without barriers."""
        test = self._expression(1)
        if self._random.random() < 0.4:
            return Statement("repeat", expression=test, body=self._turned(self._settings))
        bound = self._random.randint(-2, 9)
        return Statement("if", 0, bound, test, self._predicate(), self._settings())

    def _settings(self) -> tuple[Statement, ...]:
        return tuple(
            Statement("set", self._variable(), expression=self._expression(2))
            for _ in range(self._random.randint(1, 3))
        )

    def _turned(self, make: Callable[[], tuple[Statement, ...]]) -> tuple[Statement, ...]:
        self._loops += 1
        made = make()
        self._loops -= 1
        return made

    def _variable(self) -> int:
        return self._random.randrange(VARIABLES)

    def _predicate(self) -> str:
        return self._random.choice(sorted(COMPARED))

    def _argument(self) -> Expression:
        return Expression("argument", self._random.randrange(2))

    def _expression(self, depth: int) -> Expression:
        if depth and self._random.random() < 0.7:
            pair = (self._expression(depth - 1), self._expression(depth - 1))
            return Expression(self._random.choice(sorted(_BINARY)), operands=pair)
        kinds = ["var", "var", "var", "number", "id", *(["turn"] if self._loops else [])]
        kind = self._random.choice(kinds)
        most = {"var": VARIABLES, "number": 40, "id": 5, "turn": self._loops}[kind]
        return Expression(kind, self._random.randrange(most))


def random_kernel(name: str, seed: int, *, reduces: bool = False) -> RandomKernel:
    """Return the kernel of a seed; with `reduces`, it also reduces over block and subgroup."""
    return Maker(seed, reduces=reduces).kernel(name)


class Run:
    """Executes one block of a kernel, statement by statement for all threads."""

    def __init__(self, threads: Sequence[Thread]) -> None:
        self.threads = threads
        self.values = [[thread.number] * VARIABLES for thread in threads]
        self.words = [0] * len(threads)
        self.printed: list[str] = []
        self._turns: list[list[int]] = [[] for _ in threads]

    def run(self, body: Sequence[Statement], active: Sequence[int]) -> None:
        for statement in body:
            self._statement(statement, active)

    def _statement(self, statement: Statement, active: Sequence[int]) -> None:
        expression = statement.expression
        given = {at: self._value(expression, at) for at in active} if expression else {}
        match statement.kind:
            case "set":
                self._store(statement, given)
            case "reduce":
                total = wrapped(sum(given.values()), "i32")
                self._store(statement, dict.fromkeys(given, total))
            case "exchange":
                size, step = len(self.threads), statement.number
                taken = {
                    at: (at + step) % size if step >= 0 else (-1 - step) % size for at in given
                }
                for at, value in given.items():
                    self.words[at] = value
                self._store(statement, {at: self.words[other] for at, other in taken.items()})
            case "if":
                test = COMPARED[statement.predicate]
                chosen = [at for at in active if test(given[at], statement.number)]
                self.run(statement.body, chosen)
                self.run(statement.other, [at for at in active if at not in chosen])
            case _:
                turns = {at: given[at] % 4 if given else statement.number for at in active}
                self._loop(statement, turns)

    def _loop(self, statement: Statement, turns: dict[int, int]) -> None:
        for turn in range(max(turns.values(), default=0)):
            active = [at for at, most in turns.items() if turn < most]
            for at in active:
                self._turns[at].append(turn)
            self.run(statement.body, active)
            for at in active:
                self._turns[at].pop()

    def _store(self, statement: Statement, values: dict[int, int]) -> None:
        for at, value in values.items():
            self.values[at][statement.variable] = value

    def _value(self, expression: Expression, at: int) -> int:
        thread = self.threads[at]
        match expression.kind:
            case "var":
                return self.values[at][expression.number]
            case "number" | "argument":
                return expression.number
            case "turn":
                return self._turns[at][expression.number]
            case "id":
                return (*thread.thread, thread.block[0], thread.number)[expression.number]
            case kind:
                left, right = (self._value(operand, at) for operand in expression.operands)
                return wrapped(_BINARY[kind](left, right), "i32")


def computed(
    kernel: RandomKernel, threads: Sequence[Thread], make: Callable[[Sequence[Thread]], Run] = Run
) -> list[int]:
    """Return the results of the kernel, thread by thread."""
    found, printed = [], list[str]()
    for block in dict.fromkeys(thread.block for thread in threads):
        run = make([thread for thread in threads if thread.block == block])
        run.run(kernel.body, range(len(run.threads)))
        found += [value for values in run.values for value in values]
        printed += run.printed
    return [*found, *printed_numbers(printed)]


def printed_numbers(lines: Sequence[str]) -> list[int]:
    """Return the numbers in the lines that kernels print, in an order that does not depend on that of the threads."""
    return [
        number
        for numbers in sorted([*map(int, line.split()[1:])] for line in lines)
        for number in numbers
    ]


class Writer:
    """Writes statements in MLIR, with consecutive value names."""

    def __init__(self, kernel: RandomKernel) -> None:
        self._name = kernel.name
        self._size = prod(kernel.block)
        self._names = count()
        self._turns: list[str] = []

    def functions(self) -> str:
        """Return the functions that the kernel calls."""
        return ""

    def whole(self, statements: Sequence[Statement]) -> Iterator[str]:
        """Yield the lines of the body of a kernel."""
        return self.body(statements)

    def body(self, statements: Sequence[Statement]) -> Iterator[str]:
        for statement in statements:
            yield from self._statement(statement)

    def _statement(self, statement: Statement) -> Iterator[str]:
        value = ""
        if statement.expression:
            value = yield from self._value(statement.expression)
        match statement.kind:
            case "set":
                yield self._store(statement, value)
            case "reduce":
                total = self._new()
                yield f"{total} = gpu.all_reduce add {value} uniform {{}} : (i32) -> i32"
                yield self._store(statement, total)
            case "exchange":
                yield from self._exchange(statement, value)
            case "if":
                bound = yield from self._constant(statement.number)
                test = self._new()
                yield f"{test} = arith.cmpi {statement.predicate}, {value}, {bound} : i32"
                yield f"scf.if {test} {{"
                yield from self.body(statement.body)
                if statement.other:
                    yield "} else {"
                    yield from self.body(statement.other)
                yield "}"
            case _:
                yield from self._loop(statement, value)

    def _new(self) -> str:
        return f"%v{next(self._names)}"

    def _line(self, text: str) -> Lines:
        name = self._new()
        yield f"{name} = {text}"
        return name

    def _loop(self, statement: Statement, value: str) -> Iterator[str]:
        turns, index = self._new(), self._new()
        if value:
            mask = yield from self._constant(3)
            masked = self._new()
            yield f"{masked} = arith.andi {value}, {mask} : i32"
            yield f"{turns} = arith.index_cast {masked} : i32 to index"
        else:
            yield f"{turns} = arith.constant {statement.number} : index"
        yield f"scf.for {index} = %i0 to {turns} step %i1 {{"
        self._turns.append(index)
        yield from self.body(statement.body)
        self._turns.pop()
        yield "}"

    def _exchange(self, statement: Statement, value: str) -> Iterator[str]:
        words = f"memref<{self._size}xi32, {SHARED}>"
        step, source, taken = self._new(), self._new(), self._new()
        yield "gpu.barrier"
        yield f"memref.store {value}, %words[%number] : {words}"
        yield "gpu.barrier"
        if statement.number < 0:
            yield f"{source} = arith.constant {(-1 - statement.number) % self._size} : index"
        else:
            moved = self._new()
            yield f"{step} = arith.constant {statement.number} : index"
            yield f"{moved} = arith.addi %number, {step} : index"
            yield f"{source} = arith.remui {moved}, %size : index"
        yield f"{taken} = memref.load %words[{source}] : {words}"
        yield self._store(statement, taken)

    def _store(self, statement: Statement, value: str) -> str:
        return f"memref.store {value}, %own[%i{statement.variable}] : {OWN}"

    def _constant(self, number: int) -> Lines:
        name = self._new()
        yield f"{name} = arith.constant {number} : i32"
        return name

    def _value(self, expression: Expression) -> Lines:
        name = self._new()
        match expression.kind:
            case "var":
                yield f"{name} = memref.load %own[%i{expression.number}] : {OWN}"
            case "number":
                yield f"{name} = arith.constant {expression.number} : i32"
            case "argument":
                return f"%argument{expression.number}"
            case "turn":
                turn = self._turns[expression.number]
                yield f"{name} = arith.index_cast {turn} : index to i32"
            case "id":
                place = ("%tx", "%ty", "%tz", "%bx", "%number")[expression.number]
                yield f"{name} = arith.index_cast {place} : index to i32"
            case kind:
                left = yield from self._value(expression.operands[0])
                right = yield from self._value(expression.operands[1])
                yield f"{name} = arith.{kind} {left}, {right} : i32"
        return name


def _text(kernel: RandomKernel, make: Callable[[RandomKernel], Writer]) -> str:
    size, writer = prod(kernel.block), make(kernel)
    sizes = [
        f"%{letter}{axis} = arith.constant {extent} : index"
        for letter, extents in (("g", kernel.grid), ("b", kernel.block))
        for axis, extent in enumerate(extents)
    ]
    indices = [f"%i{n} = arith.constant {n} : index" for n in range(VARIABLES)]
    numbers = [f"memref.store %n, %own[%i{n}] : {OWN}" for n in range(VARIABLES)]
    left = [
        line.replace("$", str(n))
        for n in range(VARIABLES)
        for line in (
            f"%left$ = memref.load %own[%i$] : {OWN}",
            "%place$ = arith.addi %at, %i$ : index",
            "memref.store %left$, %out[%place$] : memref<?xi32>",
        )
    ]
    return _PROGRAM.format(
        name=kernel.name,
        sizes="\n".join(sizes),
        size=size,
        own=OWN,
        ids=_IDS,
        words=f"memref<{size}xi32, {SHARED}>",
        wide=f"memref<{size}xi64, {SHARED}>",
        functions=writer.functions(),
        body="\n".join((*indices, *numbers, *writer.whole(kernel.body), *left)),
    )


OWN = f"memref<{VARIABLES}xi32, #gpu.address_space<private>>"
_PROGRAM = """gpu.module @module_{name} {{
{functions}
gpu.func @{name}(%out: memref<?xi32>, %argument0: i32, %argument1: i32)
    workgroup(%words: {words}, %wide: {wide}) private(%own: {own}) kernel {{
{ids}
%z0 = arith.muli %tz, %sy : index
%z1 = arith.addi %z0, %ty : index
%z2 = arith.muli %z1, %sx : index
%number = arith.addi %z2, %tx : index
%n = arith.index_cast %number : index to i32
%size = arith.constant {size} : index
%z3 = arith.muli %bz, %gy : index
%z4 = arith.addi %z3, %by : index
%z5 = arith.muli %z4, %gx : index
%z6 = arith.addi %z5, %bx : index
%z7 = arith.muli %z6, %size : index
%z8 = arith.addi %z7, %number : index
%eight = arith.constant 8 : index
%at = arith.muli %z8, %eight : index
%first = arith.muli %z7, %eight : index
{body}
gpu.return
}}
}}
func.func @{name}(%out: memref<?xi32>, %argument0: i32, %argument1: i32) attributes {{llvm.emit_c_interface}} {{
{sizes}
gpu.launch_func @module_{name}::@{name} blocks in (%g0, %g1, %g2) threads in (%b0, %b1, %b2)
    args(%out : memref<?xi32>, %argument0 : i32, %argument1 : i32)
return
}}
"""
_IDS = "\n".join(
    f"%{letter}{axis} = gpu.{name} {axis}"
    for letter, name in (
        ("t", "thread_id"),
        ("b", "block_id"),
        ("s", "block_dim"),
        ("g", "grid_dim"),
    )
    for axis in "xyz"
)


def program_of(
    kernels: Sequence[RandomKernel], make: Callable[[RandomKernel], Writer] = Writer
) -> str:
    """Return a program with a function for each kernel, which stores its results in a memref."""
    body = "\n".join(_text(kernel, make) for kernel in kernels)
    return f"module attributes {{gpu.container_module}} {{\n{body}}}\n"
