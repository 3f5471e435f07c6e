"""The kernels of random_lanes.py as MLIR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from support.random_exchange import ExchangeWriter
from support.random_kernel import (
    OWN,
    SHARED,
    VARIABLES,
    Expression,
    Lines,
    RandomKernel,
    Statement,
)
from support.random_lanes import FLOATS, SMALL, SUBGROUP, UNARY
from support.random_special import SpecialWriter

_CONSTANTS = (
    "%zero = arith.constant 0 : i64",
    "%low = arith.constant 65535 : i32",
    "%half = arith.constant 0.5 : f32",
    "%three = arith.constant 3.0 : f64",
    "%four = arith.constant dense<[1, 2, 3, 4]> : vector<4xi32>",
)
# Each computes a value from the one before it, `$`.
_STEPS = {
    "i8": ("arith.trunci $ : i32 to i8", "arith.extsi $ : i8 to i32"),
    "i16": ("arith.trunci $ : i32 to i16", "arith.extsi $ : i16 to i32"),
    "half": (
        "arith.andi $, %low : i32",
        "arith.sitofp $ : i32 to f32",
        "arith.mulf $, %half : f32",
        "arith.fptosi $ : f32 to i32",
    ),
    "threefold": (
        "arith.sitofp $ : i32 to f64",
        "arith.mulf $, %three : f64",
        "arith.fptosi $ : f64 to i64",
        "arith.trunci $ : i64 to i32",
    ),
    "vector": (
        "vector.broadcast $ : i32 to vector<4xi32>",
        "arith.addi $, %four : vector<4xi32>",
        "vector.reduction <add>, $ : vector<4xi32> into i32",
    ),
}


class LaneWriter(ExchangeWriter, SpecialWriter):
    """Writes statements in MLIR, with consecutive value and block names."""

    def __init__(self, kernel: RandomKernel) -> None:
        super().__init__(kernel)
        self._blocks = count()
        self._words = f"memref<{self._size}xi32, {SHARED}>"

    def functions(self) -> str:
        """Return a function with barriers, which is inlined for every other size of a block."""
        inline = "" if self._size % 2 else 'attributes {passthrough = ["noinline"]}'
        return f"""func.func private @pass_{self._name}(%value: i32, %words: {self._words}, %own: index, %other: index)
    -> i32 {inline} {{
gpu.barrier
memref.store %value, %words[%own] : {self._words}
gpu.barrier
%taken = memref.load %words[%other] : {self._words}
return %taken : i32
}}"""

    def whole(self, statements: Sequence[Statement]) -> Iterator[str]:
        """Yield the lines of the body of a kernel; threads that leave early also store their results."""
        yield from _CONSTANTS
        yield f"memref.store %zero, %wide[%number] : memref<{self._size}xi64, {SHARED}>"
        yield from self.body(statements)
        yield from ("cf.br ^end", "^end:")

    def _statement(self, statement: Statement) -> Iterator[str]:
        write = getattr(self, f"_write_{statement.kind}", None)
        if write is None:
            yield from super()._statement(statement)
        elif statement.kind in {"while", "break"}:
            yield from write(statement)
        else:
            value = ""
            if statement.expression:
                value = yield from self._value(statement.expression)
            yield from write(statement, value)

    def _index(self, number: int) -> Lines:
        return (yield from self._line(f"arith.constant {number} : index"))

    def _write_leave(self, statement: Statement, value: str) -> Iterator[str]:
        after = f"^stay{next(self._blocks)}"
        test = yield from self._test(statement, value, statement.number)
        yield from (f"cf.cond_br {test}, ^end, {after}", f"{after}:")

    def _test(self, statement: Statement, value: str, bound: int) -> Lines:
        number = yield from self._constant(bound)
        return (yield from self._line(f"arith.cmpi {statement.predicate}, {value}, {number} : i32"))

    def _write_total(self, statement: Statement, value: str) -> Iterator[str]:
        operation, kind = statement.how
        given = yield from self._as(kind, value)
        total = yield from self._line(
            f"gpu.all_reduce {operation} {given} uniform {{}} : ({kind}) -> {kind}"
        )
        yield self._store(statement, (yield from self._back(kind, total)))

    def _write_part(self, statement: Statement, value: str) -> Iterator[str]:
        operation, kind, size, stride = statement.how
        given = yield from self._as(kind, value)
        cluster = "" if int(size) == SUBGROUP else f"cluster(size = {size}, stride = {stride}) "
        text = f"gpu.subgroup_reduce {operation} {given} {cluster}: ({kind}) -> {kind}"
        yield self._store(statement, (yield from self._back(kind, (yield from self._line(text)))))

    def _as(self, kind: str, value: str) -> Lines:
        """Convert an i32 to a type; to a floating-point type only its lowest bits."""
        if kind in FLOATS:
            mask = yield from self._constant(SMALL)
            small = yield from self._line(f"arith.andi {value}, {mask} : i32")
            return (yield from self._line(f"arith.sitofp {small} : i32 to {kind}"))
        if kind == "i32":
            return value
        change = "extsi" if kind == "i64" else "trunci"
        return (yield from self._line(f"arith.{change} {value} : i32 to {kind}"))

    def _back(self, kind: str, value: str) -> Lines:
        if kind == "i32":
            return value
        change = "fptosi" if kind in FLOATS else "trunci" if kind == "i64" else "extsi"
        return (yield from self._line(f"arith.{change} {value} : {kind} to i32"))

    def _write_subgroups(self, statement: Statement, _value: str) -> Iterator[str]:
        size = yield from self._index(SUBGROUP)
        number = yield from self._line(f"arith.divui %number, {size} : index")
        narrow = yield from self._line(f"arith.index_cast {number} : index to i32")
        test = yield from self._test(statement, narrow, statement.number)
        yield f"scf.if {test} {{"
        yield from self.body(statement.body)
        yield "}"

    def _write_shuffle(self, statement: Statement, value: str) -> Iterator[str]:
        """Shuffle; a lane takes the result if it is one of the first `width` and its source exists."""
        mode, width = statement.how
        line, constant = self._line, self._constant
        offset, size = (yield from constant(statement.number)), (yield from constant(int(width)))
        all_, no = (yield from constant(SUBGROUP)), (yield from constant(-777))
        result, valid = self._new(), self._new()
        yield f"{result}, {valid} = gpu.shuffle {mode} {value}, {offset}, {size} : i32"
        lane = yield from line(f"arith.remui %n, {all_} : i32")
        way = {"xor": "xori", "up": "subi", "down": "addi"}.get(mode)
        source = (yield from line(f"arith.{way} {lane}, {offset} : i32")) if way else offset
        first = yield from line(f"arith.subi %n, {lane} : i32")
        other = yield from line(f"arith.addi {first}, {source} : i32")
        threads = yield from constant(self._size)
        tests = [(lane, size), (source, all_), (other, threads)]
        takes = yield from line("arith.constant true")
        for left, right in tests:
            test = yield from line(f"arith.cmpi ult, {left}, {right} : i32")
            takes = yield from line(f"arith.andi {takes}, {test} : i1")
        found = yield from line(f"arith.select {valid}, {result}, {no} : i32")
        yield self._store(
            statement, (yield from line(f"arith.select {takes}, {found}, {value} : i32"))
        )

    def _place(self, distance: int) -> Lines:
        step = yield from self._index(distance)
        moved = yield from self._line(f"arith.addi %number, {step} : index")
        return (yield from self._line(f"arith.remui {moved}, %size : index"))

    def _write_call(self, statement: Statement, value: str) -> Iterator[str]:
        place = yield from self._place(statement.number)
        types = f"(i32, {self._words}, index, index) -> i32"
        call = f"func.call @pass_{self._name}({value}, %words, %number, {place}) : {types}"
        yield self._store(statement, (yield from self._line(call)))

    def _write_atomic(self, statement: Statement, value: str) -> Iterator[str]:
        place = yield from self._place(statement.number)
        yield from (
            "gpu.barrier",
            f"memref.store %n, %words[%number] : {self._words}",
            "gpu.barrier",
        )
        old = yield from self._rmw(statement.how[0], value, place)
        yield "gpu.barrier"
        new = yield from self._line(f"memref.load %words[%number] : {self._words}")
        yield f"memref.store {new}, %own[%i{(statement.variable + 1) % VARIABLES}] : {OWN}"
        yield self._store(statement, old)

    def _rmw(self, kind: str, value: str, place: str) -> Lines:
        text = f"memref.atomic_rmw {kind} {value}, %words[{place}] : (i32, {self._words}) -> i32"
        return (yield from self._line(text))

    def _write_contended(self, statement: Statement, value: str) -> Iterator[str]:
        modulus = yield from self._index(statement.number + 1)
        rest = yield from self._line(f"arith.remui %number, {modulus} : index")
        place = yield from self._line(f"arith.remui {rest}, %size : index")
        zero = yield from self._constant(0)
        yield from (
            "gpu.barrier",
            f"memref.store {zero}, %words[%number] : {self._words}",
            "gpu.barrier",
        )
        yield from self._rmw("addi", value, place)
        yield "gpu.barrier"
        yield self._store(
            statement, (yield from self._line(f"memref.load %words[{place}] : {self._words}"))
        )

    def _write_scatter(self, statement: Statement, value: str) -> Iterator[str]:
        place, number = (
            (yield from self._slot(value)),
            (yield from self._constant(statement.number)),
        )
        yield f"memref.store {number}, %own[{place}] : {OWN}"

    def _slot(self, value: str) -> Lines:
        mask = yield from self._constant(VARIABLES - 1)
        masked = yield from self._line(f"arith.andi {value}, {mask} : i32")
        return (yield from self._line(f"arith.index_cast {masked} : i32 to index"))

    def _write_while(self, statement: Statement) -> Iterator[str]:
        bound, turn, inner = (yield from self._index(statement.number)), self._new(), self._new()
        yield f"{self._new()} = scf.while ({turn} = %i0) : (index) -> index {{"
        more = yield from self._line(f"arith.cmpi ult, {turn}, {bound} : index")
        self._turns.append(turn)
        value = yield from self._value(statement.expression or Expression("number"))
        test = yield from self._test(statement, value, int(statement.how[0]))
        both = yield from self._line(f"arith.andi {more}, {test} : i1")
        yield from (f"scf.condition({both}) {turn} : index", "} do {", f"^bb0({inner}: index):")
        self._turns[-1] = inner
        yield from self.body(statement.body)
        self._turns.pop()
        yield from (
            f"{inner}n = arith.addi {inner}, %i1 : index",
            f"scf.yield {inner}n : index",
            "}",
        )

    def _write_break(self, statement: Statement) -> Iterator[str]:
        number, bound, turn = (
            next(self._blocks),
            (yield from self._index(statement.number)),
            self._new(),
        )
        yield from (f"cf.br ^head{number}(%i0 : index)", f"^head{number}({turn}: index):")
        more = yield from self._line(f"arith.cmpi ult, {turn}, {bound} : index")
        yield from (f"cf.cond_br {more}, ^work{number}, ^after{number}", f"^work{number}:")
        self._turns.append(turn)
        yield from self.body(statement.body)
        value = yield from self._value(statement.expression or Expression("number"))
        test = yield from self._test(statement, value, int(statement.how[0]))
        yield from (f"cf.cond_br {test}, ^found{number}, ^next{number}", f"^found{number}:")
        yield from self.body(statement.other)
        self._turns.pop()
        yield from (f"cf.br ^after{number}", f"^next{number}:")
        following = yield from self._line(f"arith.addi {turn}, %i1 : index")
        yield from (f"cf.br ^head{number}({following} : index)", f"^after{number}:")

    def _value(self, expression: Expression) -> Lines:
        if expression.kind not in UNARY and expression.kind != "dynamic":
            return (yield from super()._value(expression))
        value = yield from self._value(expression.operands[0])
        if expression.kind == "dynamic":
            place = yield from self._slot(value)
            return (yield from self._line(f"memref.load %own[{place}] : {OWN}"))
        for step in _STEPS.get(expression.kind, (f"math.{expression.kind} $ : i32",)):
            value = yield from self._line(step.replace("$", value))
        return value
