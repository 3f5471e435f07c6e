"""The writer for rows of threads: plain loops over the threads, with branches inside."""

from __future__ import annotations

from collections.abc import Mapping

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Block, Instruction, Value
from mlir_offload.translate.cpu.collapse.base import KernelWriter
from mlir_offload.translate.cpu.collapse.cut import Cut
from mlir_offload.translate.cpu.collapse.piece import Piece, condition_of
from mlir_offload.translate.cpu.collapse.place import LARGEST_BLOCK
from mlir_offload.translate.cpu.collapse.share import Sharing
from mlir_offload.translate.cpu.collapse.slot import Slots
from mlir_offload.translate.cpu.collapse.stretch import Stretch, cut_stretches
from mlir_offload.translate.cpu.collapse.thread import ThreadLoop
from mlir_offload.translate.cpu.collapse.traffic import Traffic


class RowWriter(KernelWriter):
    """Writes a kernel for rows of any length (`Geometry.is_any_width`).

    Each stretch is one loop over the threads of the row. Divergent branches are branches in the body of the loop.
    """

    def _make_traffic(self) -> Traffic:
        self._stretches = cut_stretches(self.graph, self.shapes)
        self._stretch_of = {p: stretch for stretch in self._stretches for p in stretch.pieces}
        traffic = Traffic(self.graph, self.shapes, self._stretch_of.__getitem__)
        for piece in self.graph.order:
            if self._is_choice(piece):
                edges = (edge for after in piece.successors for edge in traffic.edge(piece, after))
                traffic.crossing.update(v for _, v in edges if isinstance(v, Instruction))
        return traffic

    def _make_slots(self, arguments: Mapping[Value, Value]) -> Slots:
        self._sharing = Sharing(self.graph, self.shapes, self.traffic, self._stretches)
        barriers = (piece for piece in self.graph.order if piece.is_barrier)
        self._waiting = {v for piece in barriers for v in self.traffic.live(piece.successors[0])}
        return Slots(
            self.frame, self.graph, self.shapes, self.traffic, self.strip, arguments, self._memory
        )

    def _memory(self, value: Value) -> Value:
        """Return the slot of a divergent value; if it is live across a barrier, each row has its own slot."""
        frame, group = self.frame, self._sharing.group(value)
        memory = frame.block_memory((group, True), value.type, LARGEST_BLOCK, "slot")
        is_waiting = not self._waiting.isdisjoint(group)
        return frame.element(value.type, memory, self.strip.first) if is_waiting else memory

    def write_pieces(self, pieces: list[Piece]) -> None:
        """Write the code of pieces."""
        for stretch in self._stretches:
            if stretch.entry in pieces:
                self._write(stretch)

    def _write(self, stretch: Stretch) -> None:
        b, slots = self.frame.b, self.slots
        b.go(self.label(stretch.entry, is_masked=False))
        slots.begin()
        self._write_shared(stretch)
        loop = ThreadLoop(self, stretch, self._edges)
        for value in loop.needed:
            if not self.shapes.is_divergent(value):
                slots.scalar(value)
        if loop.has_work:
            self._run(stretch, loop)
        last = stretch.pieces[-1]
        if last in stretch.core_of:
            b.jump(self._target(stretch.exit))
            return
        for after in last.successors:
            for phi, value in self.traffic.edge(last, after):
                if not self.shapes.is_divergent(phi):
                    b.store(slots.scalar(value), slots.incoming(phi))
        self._leave(last)

    def _write_shared(self, stretch: Stretch) -> None:
        """Append the uniform and linear values, which are computed once, before the loop over the threads."""
        slots, shapes = self.slots, self.shapes
        if stretch.entry in stretch.spine:
            for phi in stretch.entry.phis:
                if not shapes.is_divergent(phi):
                    slots.set_scalar(phi, slots.incoming_scalar(phi))
        for piece in stretch.spine:
            for instruction in piece.instructions:
                if not shapes.is_divergent(instruction):
                    slots.set_scalar(instruction, self.scalar(instruction))

    def _target(self, piece: Piece | None) -> Block:
        return self.segment.end if piece is None else self.label(piece, is_masked=False)

    def _leave(self, piece: Piece) -> None:
        b = self.frame.b
        if piece.is_barrier:
            b.jump(self.segment.arrival(piece.successors[0]))
        elif len(piece.successors) > 1:
            here, condition = b.block, self.slots.scalar(condition_of(piece))
            then, other = (self._copied(piece, after) for after in piece.successors)
            b.go(here)
            b.branch(condition, then, other)
        else:
            b.jump(self._target(next(iter(piece.successors), None)))

    def _copied(self, piece: Piece, after: Piece) -> Block:
        """Return the target of an edge: the piece, or a basic block that first copies values to its phis."""
        frame, slots, target = self.frame, self.slots, self.label(after, is_masked=False)
        copies = self._edges(piece, after, are_copies=True)
        if not copies:
            return target
        begin = frame.new_block("copies")
        frame.b.go(begin)

        def body(lane: Value) -> None:
            slots.begin_lane(lane)
            values = [slots.lane(value) for _, value in copies]
            for (phi, _), value in zip(copies, values, strict=True):
                frame.put(value, slots.incoming(phi), lane)
            slots.end_lane()

        frame.loop(body, part=self._row())
        frame.b.jump(target)
        return begin

    def _edges(
        self, piece: Piece, after: Piece, *, are_copies: bool = False
    ) -> list[tuple[Instruction, Value]]:
        """Return the phis of an edge with the values that the loop over threads stores to them.

        After a uniform branch, values of the edge that is not taken must not be stored. Divergent phis then get
        copies after the loop, which are returned if `are_copies`.
        """
        return [
            (phi, value)
            for phi, value in self.traffic.edge(piece, after)
            if (self._is_choice(piece) and self.shapes.is_divergent(phi)) is are_copies
            and not (self.shapes.is_divergent(phi) and self._sharing.is_there(phi, value))
        ]

    def _is_choice(self, piece: Piece) -> bool:
        """Return whether a piece ends with a branch that is taken once for all threads of a row."""
        return len(piece.successors) > 1 and piece not in self._stretch_of[piece].core_of

    def _row(self) -> tuple[Value, Value]:
        """Return the range of the threads of a row: the first thread, and the end."""
        frame, size = self.frame, self.block.registers["ntid.x"]
        return frame.number(0, frame.i64), frame.b.cast(Opcode.ZEXT, size, frame.i64)

    def _run(self, stretch: Stretch, loop: ThreadLoop) -> None:
        """Append a loop for each part of the row, or for the whole row if no condition splits it."""
        frame, b = self.frame, self.frame.b
        zero, width = self._row()
        cut = Cut(self, stretch)
        if not cut.conditions:
            loop.write({}, (zero, width))
            return
        points = cut.change_points(width)
        before, head, out = b.block, frame.new_block("part"), frame.new_block("parts.out")
        next_ = frame.new_block("part.next")
        b.jump(head)
        b.go(head)
        begin = b.phi(frame.i64)
        end: Value = width
        for point in points:
            ahead = b.select(b.compare(Predicate.UGT, point, begin), point, width)
            end = b.select(b.compare(Predicate.ULT, ahead, end), ahead, end)
        values = cut.values_at(begin)

        def choose(known: Mapping[Value, bool]) -> None:
            """Append a version of the loop for each combination of condition values (loop unswitching)."""
            if len(known) == len(values):
                loop.write(known, (begin, end))
                b.jump(next_)
                return
            chosen = [frame.new_block("part.chosen") for _ in range(2)]
            b.branch(values[len(known)], *chosen)
            for block, holds in zip(chosen, (True, False), strict=True):
                b.go(block)
                choose({**known, cut.conditions[len(known)]: holds})

        choose({})
        b.go(next_)
        b.add_incoming(begin, zero, before)
        b.add_incoming(begin, end, next_)
        b.branch(b.compare(Predicate.ULT, end, width), head, out)
        b.go(out)
