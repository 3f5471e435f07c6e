"""Index-set splitting: split the loop over a row at the threads where conditions such as `i < n` change."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Instruction, Value
from mlir_offload.translate.cpu.collapse.base import KernelWriter
from mlir_offload.translate.cpu.collapse.piece import Piece, condition_of
from mlir_offload.translate.cpu.collapse.stretch import Stretch

_LOGIC = (Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.SELECT, Opcode.FREEZE)
_INDEX_BITS = (32, 64)
# Each combination of condition values is a copy of the stretch.
_MOST_CONDITIONS = 2
_MOST_COPIED = 120
_EQUAL = (Predicate.EQ, Predicate.NE)
# Predicates that change at the thread for which both sides are equal, or at the next one. Those with
# an order also change at the thread for which the linear side wraps.
_CHANGE_AT = frozenset((Predicate.ULT, Predicate.UGE, Predicate.SLT, Predicate.SGE, *_EQUAL))
_CHANGE_BEHIND = frozenset((Predicate.UGT, Predicate.ULE, Predicate.SGT, Predicate.SLE, *_EQUAL))
_SIGNED = frozenset((Predicate.SGT, Predicate.SGE, Predicate.SLT, Predicate.SLE))
_SWAPPED: dict[int, int] = {
    Predicate.ULT: Predicate.UGT,
    Predicate.ULE: Predicate.UGE,
    Predicate.SLT: Predicate.SGT,
    Predicate.SLE: Predicate.SGE,
}
_SWAPPED |= {after: before for before, after in _SWAPPED.items()}


class Cut:
    """The branch conditions of a stretch that change at few threads of a row."""

    def __init__(self, writer: KernelWriter, stretch: Stretch) -> None:
        """Find the conditions that only depend on comparisons of a linear with a uniform value."""
        self._frame = writer.frame
        self._slots = writer.slots
        self._graph = writer.graph
        self._shapes = writer.shapes
        self._comparisons: dict[Value, list[Instruction]] = {}
        for piece in stretch.spine:
            if piece in stretch.core_of and piece.condition is not None:
                condition = condition_of(piece)
                found = self._find_comparisons(condition, stretch.spine)
                if found:
                    self._comparisons[condition] = found
        count = min(len(self._comparisons), _MOST_CONDITIONS)
        while count and len(stretch.pieces) << count > _MOST_COPIED:
            count -= 1
        self.conditions = list(self._comparisons)[:count]

    def _find_comparisons(self, condition: Value, spine: Sequence[Piece]) -> list[Instruction]:
        """Return the comparisons on which a condition depends; empty if it depends on another divergent value."""
        found: list[Instruction] = []
        work = [condition]
        while work:
            value = work.pop()
            if not self._shapes.is_divergent(value) or value in found:
                continue
            if not isinstance(value, Instruction) or self._graph.home[value] not in spine:
                return []
            operands = self._graph.operands.get(value, ())
            if value.opcode in _LOGIC and value.type.bits == 1:
                work += operands
            elif value.opcode == Opcode.ICMP and self._linear_side(operands) is not None:
                found.append(value)
            else:
                return []
        return found

    def _linear_side(self, operands: Sequence[Value]) -> int | None:
        strides = [self._shapes[operand].stride for operand in operands]
        if operands[0].type.bits not in _INDEX_BITS or strides not in ([0, 1], [1, 0]):
            return None
        return strides.index(1)

    def change_points(self, width: Value) -> list[Value]:
        """Append the computation of the threads at which the conditions may change; return their numbers.

        The number `width` means no change. The result is exact for all operands: the linear side is its value in
        thread 0 plus the number of the thread, and may wrap to the least number of its type.
        """
        frame, b = self._frame, self._frame.b
        ends: dict[tuple[Value, Value], Value] = {}
        for comparison in dict.fromkeys(c for v in self.conditions for c in self._comparisons[v]):
            operands, predicate = self._graph.operands[comparison], comparison.predicate
            side, type_ = self._linear_side(operands) or 0, operands[0].type
            if side:
                predicate = _SWAPPED.get(predicate, predicate)
            start, bound = (self._slots.scalar(operands[n]) for n in (side, 1 - side))
            changes: list[Value] = []
            if predicate in _CHANGE_AT:
                changes.append(bound)
            if predicate in _CHANGE_BEHIND:
                changes.append(b.binary(Opcode.ADD, bound, frame.number(1, type_)))
            if predicate not in _EQUAL:
                least = 1 << (type_.bits - 1) if predicate in _SIGNED else 0
                changes.append(frame.number(least, type_))
            for value in changes:
                if (start, value) not in ends:
                    distance = b.binary(Opcode.SUB, value, start)
                    ends[start, value] = b.cast(Opcode.ZEXT, distance, frame.i64)
        return [b.select(b.compare(Predicate.ULT, p, width), p, width) for p in ends.values()]

    def values_at(self, thread: Value) -> list[Value]:
        """Append the computation of the conditions for a thread; return their values."""
        self._slots.begin_lane(thread)
        found = [self._value(condition) for condition in self.conditions]
        self._slots.end_lane()
        return found

    def _value(self, condition: Value) -> Value:
        if not self._shapes.is_divergent(condition) or not isinstance(condition, Instruction):
            return self._slots.lane(condition)
        operands = [self._value(operand) for operand in self._graph.operands[condition]]
        # The thread may not reach the condition.
        return self._frame.b.clone_without_flags(condition, operands)
