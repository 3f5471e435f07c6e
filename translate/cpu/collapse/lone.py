"""Code that at most one lane of a strip executes, such as that after `if (thread == 0)`: it needs no loop over lanes."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Instruction, Value
from mlir_offload.translate.cpu.collapse.piece import Graph, Piece, condition_of
from mlir_offload.translate.cpu.collapse.shape import Shapes

# In a type with fewer bits, the numbers of the lanes of a strip could wrap around and occur twice.
_LEAST_BITS = 8


def lone_successor(shapes: Shapes, graph: Graph, piece: Piece) -> Piece | None:
    """Return the successor to which a branch sends at most one lane; None if there is none."""
    if piece.condition is None:
        return None
    condition, (then, other) = condition_of(piece), piece.successors
    if _holds_once(shapes, graph, condition, Predicate.EQ):
        return then
    return other if _holds_once(shapes, graph, condition, Predicate.NE) else None


def lone_pieces(shapes: Shapes, graph: Graph) -> dict[Piece, Piece]:
    """Return the pieces that at most one lane of a strip executes at a time, with the branch that chooses the lane."""
    found: dict[Piece, Piece] = {}
    for branch in graph.order:
        for piece in _behind(shapes, graph, branch):
            found.setdefault(piece, branch)
    return found


def _behind(shapes: Shapes, graph: Graph, branch: Piece) -> Iterator[Piece]:
    """Yield the pieces that only the lane of a branch reaches.

    Lanes that leave a loop in different iterations meet after it. Those that wait at a barrier meet others there.
    """
    first = lone_successor(shapes, graph, branch)
    if first is None or len(first.predecessors) > 1:
        return
    found = [piece for piece in graph.order if first in graph.dominators[piece]]
    if any(piece.is_barrier for piece in found):
        return
    loops = [body for body in graph.loops.values() if branch in body]
    yield from (piece for piece in found if all(piece in body for body in loops))


def lone_numbers(shapes: Shapes, graph: Graph, piece: Piece) -> tuple[Value, ...]:
    """Return the two numbers whose difference in lane 0 is the lane that a branch chooses, which may not exist.

    The tuple is empty if the branch chooses no lane, or not by one comparison.
    """
    if lone_successor(shapes, graph, piece) is None:
        return ()
    condition = condition_of(piece)
    if not isinstance(condition, Instruction) or condition.opcode != Opcode.ICMP:
        return ()
    left, right = graph.operands[condition]
    is_left = shapes[left].stride == -1 or shapes[right].stride == 1
    return (left, right) if is_left else (right, left)


def _holds_once(shapes: Shapes, graph: Graph, condition: Value, predicate: int) -> bool:
    """Return whether a condition holds for at most one lane, or if the predicate is NE, fails for at most one."""
    if not isinstance(condition, Instruction):
        return False
    if condition.opcode == (Opcode.AND if predicate == Predicate.EQ else Opcode.OR):
        return any(_holds_once(shapes, graph, o, predicate) for o in graph.operands[condition])
    if condition.opcode != Opcode.ICMP or condition.predicate != predicate:
        return False
    left, right = graph.operands[condition]
    strides = {shapes[left].stride, shapes[right].stride}
    return strides in ({0, 1}, {0, -1}) and left.type.bits >= _LEAST_BITS
