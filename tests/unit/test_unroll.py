"""Loops over a grid are unrolled, and compute the same results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlir_offload.translate.legalize.unroll import unroll_loops
from mlir_offload.translate.mlir.module import parse_module
from mlir_offload.translate.mlir.operation import Block, Operation

LOAD = '%v = "memref.load"(%x, %i) : (memref<?xi64>, index) -> i64'
SUM = '%s = "arith.addi"(%acc, %v) : (i64, i64) -> i64'
MODULE = """
"builtin.module"() ({{
  "gpu.module"() <{{sym_name = "m"}}> ({{
    "gpu.func"() <{{function_type = () -> ()}}> ({{
    ^bb0(%x: memref<?xi64>, %y: memref<?xi64>, %lb: index, %ub: index, %step: index, %init: i64):
      %one = "arith.constant"() <{{value = 1 : index}}> : () -> index
      %r = "scf.for"(%lb, %ub, {step}, %init) ({{
      ^bb0(%i: index, %acc: i64):
        {body}
        "scf.yield"(%s) : (i64) -> ()
      }}) : (index, index, index, i64) -> i64
      "gpu.return"() : () -> ()
    }}) {{sym_name = "k"}} : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
BITS = 64


def unrolled(
    body: str = f"{LOAD}\n{SUM}", step: str = "%step", *, is_narrow: bool = False
) -> Operation:
    module = parse_module(MODULE.format(body=body, step=step)).operations[0]
    unroll_loops(module, is_narrow=is_narrow)
    return module


def loops(module: Operation) -> list[Operation]:
    return [one for one in module.walk_inside() if one.name == "scf.for"]


def wrapped(value: int) -> int:
    return (value + (1 << (BITS - 1))) % (1 << BITS) - (1 << (BITS - 1))


COMPUTED: dict[str, Callable[..., int]] = {
    "arith.addi": lambda left, right: left + right,
    "arith.cmpi": lambda left, right: left <= right,
    "arith.maxsi": max,
    "arith.muli": lambda left, right: left * right,
    "arith.select": lambda condition, left, right: left if condition else right,
    "arith.shrsi": lambda left, right: left >> right,
    "arith.subi": lambda left, right: left - right,
}


class Machine:
    """Executes what loops consist of, with numbers of 64 bits; notes each index that is loaded."""

    def __init__(self, **values: int) -> None:
        self.values = {f"%{name}": value for name, value in values.items()}
        self.loaded: list[int] = []

    def run(self, block: Block) -> list[int]:
        for operation in block.operations:
            given = [self.values.get(name, 0) for name in operation.operand_names]
            if operation.name == "scf.yield":
                return given
            if operation.name == "scf.for":
                made = self.loop(operation, *given)
            else:
                made = [self.compute(operation, given)] if operation.result_text else []
            self.values.update(zip(operation.result_names, made, strict=True))
        return []

    def loop(self, loop: Operation, place: int, end: int, step: int, *carried: int) -> list[int]:
        block, values = loop.regions[0].blocks[0], list(carried)
        while place < end:
            self.values.update(
                zip([one.name for one in block.arguments], [place, *values], strict=True)
            )
            values = self.run(block)
            place = wrapped(place + step)
            assert len(self.loaded) < 100
        return values

    def compute(self, operation: Operation, given: list[int]) -> int:
        if operation.name == "arith.constant":
            return operation.attribute("value").integer or 0
        if operation.name == "memref.load":
            self.loaded.append(given[1])
            return given[1]
        exact = COMPUTED[operation.name](*given)
        assert not operation.has("overflowFlags") or exact == wrapped(exact)
        return wrapped(exact)


LARGEST = 2 ** (BITS - 1) - 1


@pytest.mark.parametrize(
    ("lb", "ub", "step"),
    [
        *((lb, ub, step) for lb in (0, 3) for ub in range(20) for step in (1, 2, 3, 7)),
        (0, 5, LARGEST),
        (LARGEST, -LARGEST, 1),
        (20, 14 - LARGEST, 100),
        (-LARGEST, LARGEST, LARGEST),
        (5, LARGEST // 2, LARGEST // 8),
        (LARGEST - 9, LARGEST - 1, 3),
        (-7, 9, 2),
    ],
)
def test_an_unrolled_loop_makes_the_same_steps(lb: int, ub: int, step: int) -> None:
    function = unrolled().operations[0]
    machine = Machine(lb=lb, ub=ub, step=step, init=10)
    machine.run(function.regions[0].blocks[0])
    steps = list(range(lb, ub, step))
    assert machine.loaded == steps
    assert machine.values["%r"] == wrapped(10 + sum(steps))


@pytest.mark.parametrize("is_narrow", [False, True])
def test_four_steps_at_a_time_are_made(*, is_narrow: bool) -> None:
    other = '%w = "memref.load"(%y, %i) : (memref<?xi64>, index) -> i64'
    made = (unrolled(is_narrow=is_narrow), unrolled(f"{LOAD}\n{other}\n{SUM}", is_narrow=is_narrow))
    counts = [sum(one.name == "memref.load" for one in loops(m)[0].walk_inside()) for m in made]
    assert counts == [4, 4 * 2]


@pytest.mark.parametrize(
    ("body", "step"),
    [
        (f"{LOAD}\n{SUM}", "%one"),
        (f'{LOAD}\n"gpu.barrier"() : () -> ()\n{SUM}', "%step"),
        ('%s = "arith.addi"(%acc, %acc) : (i64, i64) -> i64', "%step"),
        ("\n".join([LOAD, *[SUM] * 24]), "%step"),
    ],
    ids=["a constant step", "a barrier", "no memory", "a large body"],
)
def test_other_loops_stay_as_they_are(body: str, step: str) -> None:
    assert len(loops(unrolled(body, step))) == 1


@pytest.mark.parametrize(
    ("last", "is_narrow", "expected"),
    [(16, True, True), (17, True, False), (16, False, False)],
    ids=["short", "long", "wide"],
)
def test_llvm_unrolls_short_loops_with_narrow_indices(
    last: int, *, is_narrow: bool, expected: bool
) -> None:
    counted = MODULE.replace("(%lb, %ub, {step}, %init)", "(%zero, %last, %one, %init)").replace(
        '%one = "arith',
        f'%zero = "arith.constant"() <{{{{value = 0 : index}}}}> : () -> index\n'
        f'%last = "arith.constant"() <{{{{value = {last} : index}}}}> : () -> index\n'
        '%one = "arith',
    )
    module = parse_module(counted.format(body=f"{LOAD}\n{SUM}")).operations[0]
    unroll_loops(module, is_narrow=is_narrow)
    (loop,) = loops(module)
    assert loop.has("loop_annotation") is expected
