"""Conditions that change at few threads of a row, such as `i < n`: where they do, and what they are."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.toolchain.llvmc.builder import Builder
from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Instruction, Value
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.piece import Graph, condition_of
from mlir_offload.translate.cpu.collapse.shape import Shapes
from mlir_offload.translate.cpu.collapse.slot import Slots
from mlir_offload.translate.cpu.collapse.stretch import Stretch

_LOGIC = (Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.SELECT, Opcode.FREEZE)
_INDEX_BITS = (32, 64)
# Each combination of values is a copy of the stretch, which the compiler has to optimize.
_MOST_CONDITIONS = 2
_MOST_COPIED = 120
_EQUAL = (Predicate.EQ, Predicate.NE)
# Whether they change where both sides are equal, or one behind; all do where the linear side wraps.
_CHANGE_AT = frozenset((Predicate.ULT, Predicate.UGE, Predicate.SLT, Predicate.SGE, *_EQUAL))
_CHANGE_BEHIND = frozenset((Predicate.UGT, Predicate.ULE, Predicate.SGT, Predicate.SLE, *_EQUAL))
_SIGNED = frozenset((Predicate.SGT, Predicate.SGE, Predicate.SLT, Predicate.SLE))
_SWAPPED = {
    Predicate.ULT: Predicate.UGT,
    Predicate.ULE: Predicate.UGE,
    Predicate.SLT: Predicate.SGT,
    Predicate.SLE: Predicate.SGE,
}
_SWAPPED |= {after: before for before, after in _SWAPPED.items()}


def row_conditions(graph: Graph, shapes: Shapes, stretch: Stretch) -> list[Value]:
    """Return conditions of branches that comparisons of a linear and a uniform value decide."""
    found: dict[Value, None] = {}
    for piece in stretch.spine:
        if piece in stretch.core_of and piece.condition is not None:
            condition = condition_of(piece)
            if _comparisons(graph, shapes, stretch, condition):
                found[condition] = None
    count = min(len(found), _MOST_CONDITIONS)
    while len(stretch.pieces) << count > _MOST_COPIED:
        count -= 1
    return list(found)[: max(count, 0)]


def _comparisons(
    graph: Graph, shapes: Shapes, stretch: Stretch | None, condition: Value
) -> list[Instruction]:
    """Return the comparisons that a condition depends on, none if it depends on something else too."""
    found: list[Instruction] = []
    work = [condition]
    while work:
        value = work.pop()
        if not shapes.is_divergent(value) or value in found:
            continue
        if not isinstance(value, Instruction) or (
            stretch is not None and graph.home[value] not in stretch.spine
        ):
            return []
        operands = graph.operands.get(value, ())
        if value.opcode in _LOGIC and value.type.bits == 1:
            work += operands
        elif value.opcode == Opcode.ICMP and _linear_side(shapes, operands) is not None:
            found.append(value)
        else:
            return []
    return found


def _linear_side(shapes: Shapes, operands: Sequence[Value]) -> int | None:
    strides = [shapes[operand].stride for operand in operands]
    is_index = operands[0].type.bits in _INDEX_BITS
    return (
        strides.index(1)
        if is_index and sorted(s if s is not None else 2 for s in strides) == [0, 1]
        else None
    )


def change_points(
    frame: Frame,
    slots: Slots,
    graph: Graph,
    shapes: Shapes,
    conditions: Sequence[Value],
    width: Value,
) -> list[Value]:
    """Append where the comparisons change that conditions depend on; return the numbers of the threads.

    One that is not less than `width` is no change. Exact for all operands: the linear side is thread 0's
    plus the number of the thread, and may begin again at the least number of its type.
    """
    b = frame.b
    found: list[Value] = []
    known: set[tuple[Value, Value, int]] = set()
    for comparison in dict.fromkeys(
        c for condition in conditions for c in _comparisons(graph, shapes, None, condition)
    ):
        operands, predicate = graph.operands[comparison], Predicate(comparison.predicate)
        side = _linear_side(shapes, operands) or 0
        if side:
            predicate = _SWAPPED.get(predicate, predicate)
        type_ = operands[0].type
        start, bound = slots.scalar(operands[side]), slots.scalar(operands[1 - side])

        def add(kind: int, to: Value, key: Value, base: Value = start) -> None:
            if (base, key, kind) not in known:
                known.add((base, key, kind))
                found.append(b.cast(Opcode.ZEXT, b.binary(Opcode.SUB, to, base), frame.i64))

        one = frame.number(1, type_)
        if predicate in _CHANGE_AT:
            add(0, bound, bound)
        if predicate in _CHANGE_BEHIND:
            add(1, b.binary(Opcode.ADD, bound, one), bound)
        if predicate not in _EQUAL:
            least = 1 << (type_.bits - 1) if predicate in _SIGNED else 0
            add(2, frame.number(least, type_), frame.number(least, type_))
    return [b.select(b.compare(Predicate.ULT, p, width), p, width) for p in found]


def row_value(b: Builder, slots: Slots, graph: Graph, shapes: Shapes, condition: Value) -> Value:
    """Append a condition for the current lane."""
    if not shapes.is_divergent(condition) or not isinstance(condition, Instruction):
        return slots.lane(condition)
    operands = graph.operands[condition]
    return b.clone(condition, [row_value(b, slots, graph, shapes, o) for o in operands])
