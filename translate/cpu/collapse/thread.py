"""The loop over the threads of a row that executes a stretch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from mlir_offload.toolchain.llvmc.code import Opcode
from mlir_offload.toolchain.llvmc.ir import Block, Instruction, Value
from mlir_offload.translate.cpu.collapse.base import KernelWriter
from mlir_offload.translate.cpu.collapse.instruction import calls_libm
from mlir_offload.translate.cpu.collapse.piece import (
    REGISTERS,
    SHARED_MEMORY,
    Piece,
    condition_of,
)
from mlir_offload.translate.cpu.collapse.stretch import Stretch

# With calls of libm, on processors of 2022: four take 0.65 of the time of one, two 0.8.
_VECTORS = 4
_VECTORS_OF_A_TILE = 2
_Edge = tuple[Instruction, Value]
_Edges = Callable[[Piece, Piece], Iterable[_Edge]]


class ThreadLoop:
    """Writes the loop over threads of a stretch, once for each combination of known conditions."""

    def __init__(self, writer: KernelWriter, stretch: Stretch, leaving: _Edges) -> None:
        """Prepare the loop; `leaving` returns the phis and values that an edge out of the stretch stores."""
        self._writer = writer
        self._leaving = leaving
        self._stretch = stretch
        self._frame = writer.frame
        self._slots = writer.slots
        entry = stretch.entry
        self._is_loop = any(stretch.is_inside(before, entry) for before in entry.predecessors)

    def _is_own(self, piece: Piece, value: Value) -> bool:
        """Return whether each thread computes a value of a piece in the loop."""
        return piece not in self._stretch.spine or self._writer.shapes.is_divergent(value)

    def _is_outside(self, value: Value) -> bool:
        home = self._writer.graph.home[value] if isinstance(value, Instruction) else None
        return home not in self._stretch.pieces or not self._is_own(home, value)

    def _edges(self, piece: Piece, after: Piece) -> Sequence[_Edge]:
        """Return the phis of an edge with the values that a thread brings to them."""
        if self._stretch.is_inside(piece, after):
            return list(self._writer.traffic.edge(piece, after))
        is_divergent = self._writer.shapes.is_divergent
        is_shared = piece not in self._stretch.core_of
        edges = self._leaving(piece, after)
        return [(phi, value) for phi, value in edges if is_divergent(phi) or not is_shared]

    @property
    def has_work(self) -> bool:
        """Return whether the body of the loop is not empty."""
        return any(
            any(self._is_own(piece, value) for value in (*piece.phis, *piece.instructions))
            or any(self._edges(piece, after) for after in piece.successors)
            for piece in self._stretch.pieces
        )

    @cached_property
    def needed(self) -> list[Value]:
        """Return the values that the loop uses and does not compute."""
        found: dict[Value, None] = {}
        for piece in self._stretch.pieces:
            for i in piece.instructions:
                if self._is_own(piece, i):
                    found.update(dict.fromkeys(self._writer.graph.operands[i]))
            if piece in self._stretch.core_of and piece.condition is not None:
                found[condition_of(piece)] = None
            for after in piece.successors:
                found.update(dict.fromkeys(value for _, value in self._edges(piece, after)))
        return [value for value in found if self._is_outside(value)]

    def write(self, known: Mapping[Value, bool], part: tuple[Value, Value]) -> None:
        """Append the loop over a part of the row; `known` are the values of some conditions in it."""
        self._frame.loop(
            lambda lane: self._write_thread(known, lane),
            is_parallel=self._writer.can_be_parallel(self._stretch.pieces),
            vectors=self._vectors,
            part=part,
        )

    @property
    def _vectors(self) -> int:
        """Return the number of vectors for which calls of libm follow each other, 0 if there are none.

        Rows of kernels that use y are often as short as the 16 threads of a tile.
        """
        if not any(calls_libm(i) for piece in self._stretch.pieces for i in piece.instructions):
            return 0
        return _VECTORS_OF_A_TILE if "tid.y" in self._writer.graph.registers else _VECTORS

    def _write_thread(self, known: Mapping[Value, bool], lane: Value) -> None:
        stretch, frame, b = self._stretch, self._frame, self._frame.b
        self._slots.begin_lane(lane)
        for value in self.needed:
            self._slots.lane(value)
        brought = {phi: self._brought(phi) for phi in stretch.entry.phis}
        if not self._is_loop:
            for phi, value in brought.items():
                self._slots.set_lane(phi, value, is_kept=True)
        before, out = b.block, frame.new_block("thread.out")
        following = _following(stretch, known)
        blocks = {piece: frame.new_block(f"thread{piece.number}") for piece in following}
        b.jump(blocks[stretch.entry])
        made: dict[Instruction, Instruction] = {}
        ways: list[tuple[Piece, Block, Piece]] = []
        for piece, successors in following.items():
            b.go(blocks[piece])
            made |= self._make_phis(piece)
            for i in piece.instructions:
                if self._is_own(piece, i):
                    self._slots.set_lane(i, self._instruction(i, piece))
            ways += [(piece, b.block, s) for s in successors if stretch.is_inside(piece, s)]
            self._go_on(piece, successors, blocks, out)
        for phi in made.keys() & brought.keys():
            b.add_incoming(made[phi], brought[phi], before)
        for piece, block, after in ways:
            for phi, value in self._edges(piece, after):
                b.add_incoming(made[phi], self._slots.lane(value), block)
        b.go(out)
        self._slots.end_lane()

    def _brought(self, phi: Instruction) -> Value:
        """Return the incoming value of a phi at the entry of the stretch."""
        if self._writer.shapes.is_divergent(phi):
            return self._slots.incoming_lane(phi)
        return self._slots.from_first(phi, self._slots.incoming_scalar(phi))

    def _make_phis(self, piece: Piece) -> dict[Instruction, Instruction]:
        """Append phis without incoming values, except at an entry that is not the header of a loop."""
        is_brought = piece is self._stretch.entry and not self._is_loop
        found = {
            phi: self._frame.b.phi(phi.type)
            for phi in piece.phis
            if self._is_own(piece, phi) and not is_brought
        }
        for phi, made in found.items():
            self._slots.set_lane(phi, made)
        return found

    def _instruction(self, instruction: Instruction, piece: Piece) -> Value:
        name = instruction.callee if instruction.opcode == Opcode.CALL else ""
        is_place = name.startswith(REGISTERS) or name in SHARED_MEMORY
        is_divergent = self._writer.shapes.is_divergent(instruction)
        if (is_place and not is_divergent) or instruction.opcode == Opcode.ALLOCA:
            return self._slots.from_first(instruction, self._writer.scalar(instruction))
        return self._writer.lane(instruction, self._slots.current_lane, piece)

    def _go_on(
        self,
        piece: Piece,
        successors: Sequence[Piece],
        blocks: Mapping[Piece, Block],
        out: Block,
    ) -> None:
        """Append the branch at the end of a piece, and the stores on edges out of the stretch."""
        frame, b, here = self._frame, self._frame.b, self._frame.b.block
        targets: list[Block] = []
        for after in successors:
            kept = self._edges(piece, after)
            if self._stretch.is_inside(piece, after):
                targets.append(blocks[after])
            elif kept:
                targets.append(frame.new_block("thread.leaves"))
                b.go(targets[-1])
                self._keep(kept)
                b.jump(out)
            else:
                targets.append(out)
        b.go(here)
        if len(targets) > 1:
            b.branch(self._slots.lane(condition_of(piece)), *targets)
        else:
            b.jump(targets[0] if targets else out)

    def _keep(self, kept: Sequence[_Edge]) -> None:
        slots = self._slots
        for phi, value in kept:
            made, place = slots.lane(value), slots.incoming(phi)
            if self._writer.shapes.is_divergent(phi):
                self._frame.put(made, place, slots.current_lane)
            else:
                self._frame.b.store(slots.shared(phi, made), place)


def _following(stretch: Stretch, known: Mapping[Value, bool]) -> dict[Piece, Sequence[Piece]]:
    """Return the pieces that can be reached if some conditions are known, each with its possible successors.

    A uniform branch at the end of the stretch is outside of the loop: its piece has no successors here.
    """
    found: dict[Piece, Sequence[Piece]] = {}
    reached = {stretch.entry}
    for piece in stretch.pieces:
        if piece not in reached:
            continue
        after = piece.successors
        if piece.condition is not None and piece not in stretch.core_of:
            after = []
        elif piece.condition is not None and condition_of(piece) in known:
            after = [after[0 if known[condition_of(piece)] else 1]]
        found[piece] = after
        reached.update(s for s in after if stretch.is_inside(piece, s))
    return found
