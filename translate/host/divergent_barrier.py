"""Find barriers that not all threads of a block reach, if launch and condition are constant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from operator import add, and_, eq, ge, gt, le, lt, mul, ne, or_, sub, xor

from msgspec import Struct

from mlir_offload.translate.gpu_module import KernelKey, arguments_of, grid_and_block, launches_in
from mlir_offload.translate.host.launch import MOST_THREADS, SourceWarning, note_constant
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation, Region

_BARRIER = "gpu.barrier"
_AXES = ("x", "y", "z")
_LARGEST = 2**31
_COMPUTED: Mapping[str, Callable[[int, int], int]] = {
    "arith.addi": add,
    "arith.subi": sub,
    "arith.muli": mul,
    "arith.andi": and_,
    "arith.ori": or_,
    "arith.xori": xor,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.shrui": lambda a, b: a >> b,
}
_DIVISIONS = frozenset(("arith.divui", "arith.remui"))
_CASTS = frozenset(f"arith.{name}" for name in ("index_cast", "index_castui", "extsi", "extui"))
# In the order of arith::CmpIPredicate. Signed and unsigned are equal, because no number is negative.
_PREDICATES = (eq, ne, lt, le, gt, ge, lt, le, gt, ge)

_Values = tuple[int, ...]
"""The value of an integer in each thread of the block."""


class _Launch(Struct, frozen=True):
    """A launch with constant block size, and its arguments, None for those that are not constant."""

    kernel: KernelKey
    size: tuple[int, ...]
    arguments: tuple[int | None, ...]


def find_divergent_barriers(
    device: Mapping[str, Operation], host: Iterable[Operation], locations: Locations
) -> Iterator[SourceWarning]:
    """Yield a warning for each barrier that only some threads of a launched block reach.

    Only launches with constant block size are checked, and only conditions that depend on thread IDs
    and constants alone.
    """
    risky = {
        (name, function.symbol): function
        for name, module in device.items()
        for function in module.operations
        if _has_guarded_barrier(function)
    }
    launches = (launch for function in host for launch in _launches(function)) if risky else ()
    for launch in dict.fromkeys(launches):
        if launch.kernel in risky:
            threads = prod(launch.size)
            for barrier, count in _Block(launch).run(risky[launch.kernel]):
                text = f"only {count} of the {threads} threads of a block reach this barrier"
                yield SourceWarning(text, locations.of(barrier))


def _has_guarded_barrier(function: Operation) -> bool:
    return any(
        one.name == "scf.if" and any(inner.name == _BARRIER for inner in one.walk_inside())
        for one in function.walk_inside()
    )


def _launches(function: Operation) -> Iterator[_Launch]:
    launched = {id(launch): key for launch, key in launches_in(function)}
    known: dict[str, int] = {}
    for operation in function.walk_inside() if launched else ():
        note_constant(operation, known)
        if id(operation) in launched:
            _, block = grid_and_block(operation)
            size = tuple(known.get(value.name, 0) for value in block)
            arguments = tuple(known.get(value.name) for value in arguments_of(operation))
            if 1 < prod(size) <= MOST_THREADS:
                yield _Launch(launched[id(operation)], size, arguments)


class _Block:
    """The threads of a block, and the operations that define the visible values."""

    def __init__(self, launch: _Launch) -> None:
        self._launch = launch
        threads = [(x, y, z) for z, y, x in product(*map(range, reversed(launch.size)))]
        self._ids = dict(zip(_AXES, zip(*threads, strict=True), strict=True))
        self._count = len(threads)
        self._given: dict[str, Operation] = {}
        self._arguments: dict[str, int] = {}

    def run(self, kernel: Operation) -> Iterator[tuple[Operation, int]]:
        """Yield the barriers that only some threads reach, and the number of these threads."""
        names = [argument.name for argument in kernel.regions[0].blocks[0].arguments]
        pairs = zip(names, self._launch.arguments, strict=False)
        self._arguments = {name: number for name, number in pairs if number is not None}
        yield from self._walk(kernel.regions, (True,) * self._count)

    def _walk(
        self, regions: Iterable[Region], active: Sequence[bool]
    ) -> Iterator[tuple[Operation, int]]:
        for operation in (one for region in regions for b in region.blocks for one in b.operations):
            if operation.name == _BARRIER and not all(active):
                yield operation, sum(active)
            condition = self._condition(operation)
            if condition is None:
                yield from self._walk(operation.regions, active)
            else:
                for region, wanted in zip(operation.regions, (True, False), strict=True):
                    chosen = [
                        a and bool(c) is wanted for a, c in zip(active, condition, strict=True)
                    ]
                    if any(chosen):
                        yield from self._walk((region,), chosen)
            self._given.update(dict.fromkeys(operation.result_names, operation))

    def _condition(self, operation: Operation) -> _Values | None:
        """Return the condition of an `scf.if` with a barrier, None if it is unknown."""
        if operation.name != "scf.if":
            return None
        if not any(inner.name == _BARRIER for inner in operation.walk_inside()):
            return None
        return self._value(operation.operand_names[0], {})

    def _value(self, name: str, known: dict[str, _Values | None]) -> _Values | None:
        if name not in known:
            number = self._arguments.get(name)
            operation = self._given.get(name)
            if number is not None:
                known[name] = self._same(number)
            else:
                known[name] = self._result(operation, known) if operation else None
        return known[name]

    def _same(self, number: int) -> _Values:
        return (number,) * self._count

    def _result(self, operation: Operation, known: dict[str, _Values | None]) -> _Values | None:
        """Return the result of an operation, None if it is unknown or could wrap around."""
        if operation.name == "gpu.thread_id":
            return self._ids[_axis(operation)]
        if operation.name == "gpu.block_dim":
            return self._same(self._launch.size[_AXES.index(_axis(operation))])
        if operation.name == "arith.constant":
            number = operation.attribute("value").integer
            return None if number is None else self._same(number)
        if operation.name not in _CASTS and operation.name not in (*_COMPUTED, "arith.cmpi"):
            return None
        operands = [self._value(operand, known) for operand in operation.operand_names]
        values = [one for one in operands if one is not None]
        return _applied(operation, values) if len(values) == len(operands) else None


def _applied(operation: Operation, operands: Sequence[_Values]) -> _Values | None:
    # Negative numbers are large in unsigned operations, and a division by 0 has no result.
    if any(not 0 <= number < _LARGEST for values in operands for number in values):
        return None
    if operation.name in _CASTS:
        return operands[0]
    left, right = operands
    if operation.name in _DIVISIONS and 0 in right:
        return None
    if operation.name == "arith.cmpi":
        compare = _PREDICATES[operation.attribute("predicate").integer or 0]
        return tuple(int(compare(a, b)) for a, b in zip(left, right, strict=True))
    return tuple(map(_COMPUTED[operation.name], left, right))


def _axis(operation: Operation) -> str:
    return operation.attribute("dimension").removeprefix("#gpu<dim ").removesuffix(">")
