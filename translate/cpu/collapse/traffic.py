"""Traffic: the values that must be kept in memory between pieces, and the live values of each piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from mlir_offload.toolchain.llvmc.code import Opcode
from mlir_offload.toolchain.llvmc.ir import Instruction, Value
from mlir_offload.translate.cpu.collapse.lone import lone_numbers
from mlir_offload.translate.cpu.collapse.piece import REGISTERS, Graph, Piece, condition_of
from mlir_offload.translate.cpu.collapse.shape import Shapes

_REPEATED_CALLS = (REGISTERS, "mo.static_shared", "mo.dynamic_shared")


class Traffic:
    """The values of a kernel that pieces use of each other (`crossing`), and those that are live at each piece."""

    def __init__(
        self,
        graph: Graph,
        shapes: Shapes,
        stretch_of: Callable[[Piece], object] | None = None,
        needed: Mapping[Piece, tuple[Value, ...]] | None = None,
    ) -> None:
        """Find the values.

        `stretch_of` maps pieces to loops over lanes, by default one for each piece. `needed` contains the values that
        some pieces use instead of the operands of their instructions.
        """
        self._needed = needed or {}
        self._graph = graph
        self._shapes = shapes
        self._number = {value: number for number, value in enumerate(graph.home)}
        self._repeatable: dict[Value, bool] = {}
        self.crossing: set[Value] = set()
        for piece in graph.order:
            where = stretch_of or _itself
            self.crossing.update(
                v for v in self.used(piece) if where(graph.home[v]) is not where(piece)
            )
            if (
                stretch_of is None
                and piece.condition is not None
                and shapes.is_divergent(condition_of(piece))
            ):
                self.crossing.add(condition_of(piece))
        self._live = self._find_live()

    def used(self, piece: Piece) -> Iterator[Instruction]:
        """Yield the instructions whose values the piece uses, including those on its outgoing edges."""
        if piece in self._needed:
            yield from _instructions(self._needed[piece])
        else:
            for instruction in (*piece.instructions, piece.collective):
                if instruction is not None:
                    yield from _instructions(self._graph.operands[instruction])
        if piece.condition is not None:
            yield from _instructions((condition_of(piece),))
            yield from _instructions(lone_numbers(self._shapes, self._graph, piece))
        for successor in piece.successors:
            yield from _instructions(value for _, value in self.edge(piece, successor))

    def edge(self, piece: Piece, successor: Piece) -> Iterator[tuple[Instruction, Value]]:
        """Yield the phis of the successor with their incoming values from the piece."""
        for phi in successor.phis:
            for before, value in self._graph.incoming[phi]:
                if before is piece:
                    yield phi, value
                    break

    def live(self, piece: Piece) -> list[Value]:
        """Return the values that are live at the start of a piece, in a fixed order."""
        return self.in_order(self._live[piece])

    def in_order(self, values: AbstractSet[Value]) -> list[Value]:
        """Return values in a fixed order."""
        return sorted(values, key=self._number.__getitem__)

    def is_repeatable(self, value: Value) -> bool:
        """Return whether a value can be rematerialized from kernel arguments and IDs."""
        if not isinstance(value, Instruction):
            return True
        found = self._repeatable.get(value)
        if found is None:
            self._repeatable[value] = found = self._follows(value)
        return found

    def _follows(self, value: Instruction) -> bool:
        if self._shapes.is_divergent(value) or value.opcode in (Opcode.PHI, Opcode.LOAD):
            return False
        if value.opcode == Opcode.CALL and value.callee.startswith(_REPEATED_CALLS):
            return True
        if value.opcode == Opcode.CALL:
            return False
        return all(self.is_repeatable(operand) for operand in self._graph.operands[value])

    def _find_live(self) -> dict[Piece, set[Value]]:
        own: dict[Piece, set[Value]] = {
            piece: set[Value]((*piece.phis, *piece.instructions)) for piece in self._graph.order
        }
        for piece in self._graph.order:
            if piece.collective is not None:
                own[piece].add(piece.collective)
        live = {piece: set[Value](self.used(piece)) - own[piece] for piece in self._graph.order}
        changed = True
        while changed:
            changed = False
            for piece in reversed(self._graph.order):
                after = set[Value]().union(*(live[s] for s in piece.successors)) - own[piece]
                if not after <= live[piece]:
                    live[piece] |= after
                    changed = True
        return live


def _itself(piece: Piece) -> object:
    return piece


def _instructions(values: Iterator[Value] | tuple[Value, ...]) -> Iterator[Instruction]:
    return (value for value in values if isinstance(value, Instruction))
