"""A kernel's pieces written for rows of threads: plain loops over the threads, with branches inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Block, Instruction, Value
from mlir_offload.translate.cpu.collapse.base import KernelWriter
from mlir_offload.translate.cpu.collapse.cut import change_points, row_conditions, row_value
from mlir_offload.translate.cpu.collapse.piece import (
    REGISTERS,
    SHARED_MEMORY,
    Piece,
    condition_of,
)
from mlir_offload.translate.cpu.collapse.place import LARGEST_BLOCK
from mlir_offload.translate.cpu.collapse.share import Sharing
from mlir_offload.translate.cpu.collapse.slot import Slots
from mlir_offload.translate.cpu.collapse.stretch import Stretch, cut_stretches
from mlir_offload.translate.cpu.collapse.traffic import Traffic


class RowWriter(KernelWriter):
    """Writes a kernel for rows in x, each a strip of any number of threads.

    A stretch is one loop over the threads of the row, which takes the branches of a thread as they are.
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
        """Return the memory of a value of the row, that for all of the block if it waits at a barrier."""
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
        frame, b, slots = self.frame, self.frame.b, self.slots
        b.go(self.label(stretch.entry, is_masked=False))
        slots.begin()
        for phi in stretch.entry.phis:
            if not self.shapes.is_divergent(phi):
                incoming = slots.incoming_scalar(phi)
                if stretch.entry in stretch.spine:
                    slots.set_scalar(phi, incoming)
        for instruction in (i for piece in stretch.spine for i in piece.instructions):
            if not self.shapes.is_divergent(instruction):
                slots.set_scalar(instruction, self._scalar(instruction))
        for value in self._needed(stretch):
            if not self.shapes.is_divergent(value):
                slots.scalar(value)
        if self._has_work(stretch):
            self._run(stretch)
        last = stretch.pieces[-1]
        if last in stretch.spine and last not in stretch.core_of:
            for after in last.successors:
                for phi, value in self.traffic.edge(last, after):
                    if not self.shapes.is_divergent(phi):
                        b.store(slots.scalar(value), slots.incoming(phi))
            self._leave(last)
        else:
            b.jump(self._target(stretch.exit))
        frame.lanes = self.geometry.lanes

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
        """Return where a piece begins, or what copies values to its phis before."""
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
        """Return phis with what the loop over threads brings to them, or what is copied behind it.

        Where all threads go one of two ways, what the other one brings must not be written.
        """
        return [
            (phi, value)
            for phi, value in self.traffic.edge(piece, after)
            if (self._is_choice(piece) and self.shapes.is_divergent(phi)) is are_copies
            and not (self.shapes.is_divergent(phi) and self._sharing.is_there(phi, value))
        ]

    def _is_choice(self, piece: Piece) -> bool:
        """Say whether all threads of a row go one of two ways behind a piece."""
        return len(piece.successors) > 1 and piece not in self._stretch_of[piece].core_of

    def _is_outside(self, stretch: Stretch, value: Value) -> bool:
        """Say whether a value is computed outside of the loop over threads of a stretch."""
        home = self.graph.home[value] if isinstance(value, Instruction) else None
        return home not in stretch.pieces or not self._is_in_lane(stretch, home, value)

    def _row(self) -> tuple[Value, Value]:
        """Return the first thread of a row and the end."""
        frame, size = self.frame, self.block.registers["ntid.x"]
        return frame.number(0, frame.i64), frame.b.cast(Opcode.ZEXT, size, frame.i64)

    def _is_in_lane(self, stretch: Stretch, piece: Piece, value: Value) -> bool:
        """Say whether each thread computes a value for itself."""
        return piece not in stretch.spine or self.shapes.is_divergent(value)

    def _has_work(self, stretch: Stretch) -> bool:
        return any(
            self._is_in_lane(stretch, piece, value)
            for piece in stretch.pieces
            for value in (*piece.phis, *piece.instructions)
        ) or any(
            self.shapes.is_divergent(phi)
            for piece in stretch.pieces
            for after in piece.successors
            for phi, _ in self._edges(piece, after)
        )

    def _needed(self, stretch: Stretch) -> list[Value]:
        """Return what the loop over threads takes from outside of it."""
        found: dict[Value, None] = {}
        for piece in stretch.pieces:
            for i in piece.instructions:
                if self._is_in_lane(stretch, piece, i):
                    found.update(dict.fromkeys(self.graph.operands[i]))
            if piece in stretch.core_of and piece.condition is not None:
                found[condition_of(piece)] = None
            for after in piece.successors:
                is_inside = stretch.is_inside(piece, after)
                edges = self.traffic.edge if is_inside else self._edges
                found.update(dict.fromkeys(v for _, v in edges(piece, after)))
        return [value for value in found if self._is_outside(stretch, value)]

    # Loops over threads -------------------------------------------------------------------

    def _run(self, stretch: Stretch) -> None:
        """Append the loops: for each part of the row in which some conditions do not change, one."""
        frame, b = self.frame, self.frame.b
        zero, width = self._row()
        conditions = row_conditions(self.graph, self.shapes, stretch)
        if not conditions:
            self._loop(stretch, {}, zero, width)
            return
        points = change_points(frame, self.slots, self.graph, self.shapes, conditions, width)
        before, head, out = b.block, frame.new_block("part"), frame.new_block("parts.out")
        next_ = frame.new_block("part.next")
        b.jump(head)
        b.go(head)
        begin = b.phi(frame.i64)
        end: Value = width
        for point in points:
            ahead = b.select(b.compare(Predicate.UGT, point, begin), point, width)
            end = b.select(b.compare(Predicate.ULT, ahead, end), ahead, end)
        self.slots.begin_lane(begin)
        values = [row_value(frame.b, self.slots, self.graph, self.shapes, c) for c in conditions]
        self.slots.end_lane()
        self._choose(stretch, conditions, values, (begin, end), next_)
        b.go(next_)
        b.add_incoming(begin, zero, before)
        b.add_incoming(begin, end, next_)
        b.branch(b.compare(Predicate.ULT, end, width), head, out)
        b.go(out)

    def _choose(
        self,
        stretch: Stretch,
        conditions: Sequence[Value],
        values: Sequence[Value],
        part: tuple[Value, Value],
        done: Block,
        known: Mapping[Value, bool] | None = None,
    ) -> None:
        """Append a loop for each combination of values that conditions can have in a part of the row."""
        frame, b = self.frame, self.frame.b
        known = {} if known is None else known
        if len(known) == len(conditions):
            self._loop(stretch, known, *part)
            b.jump(done)
            return
        condition = conditions[len(known)]
        chosen = [frame.new_block("part.chosen") for _ in range(2)]
        b.branch(values[len(known)], *chosen)
        for block, holds in zip(chosen, (True, False), strict=True):
            b.go(block)
            self._choose(stretch, conditions, values, part, done, {**known, condition: holds})

    def _loop(
        self, stretch: Stretch, known: Mapping[Value, bool], begin: Value, end: Value
    ) -> None:
        is_parallel = self._can_be_parallel(stretch.pieces)
        self.frame.loop(
            lambda lane: self._body(stretch, known, lane),
            is_parallel=is_parallel,
            part=(begin, end),
        )

    def _body(self, stretch: Stretch, known: Mapping[Value, bool], lane: Value) -> None:
        """Append what one thread does."""
        frame, b, slots = self.frame, self.frame.b, self.slots
        slots.begin_lane(lane)
        for value in self._needed(stretch):
            slots.lane(value)
        brought = {phi: self._brought(phi) for phi in stretch.entry.phis}
        is_loop = any(stretch.is_inside(p, stretch.entry) for p in stretch.entry.predecessors)
        if not is_loop:
            for phi, value in brought.items():
                slots.set_lane(phi, value, is_kept=True)
        before, out = b.block, frame.new_block("thread.out")
        following = _following(stretch, known)
        blocks = {piece: frame.new_block(f"thread{piece.number}") for piece in following}
        b.jump(blocks[stretch.entry])
        made: dict[Instruction, Instruction] = {}
        ways: list[tuple[Piece, Block, Piece]] = []
        for piece, successors in following.items():
            b.go(blocks[piece])
            made |= {
                phi: b.phi(phi.type)
                for phi in piece.phis
                if self._is_in_lane(stretch, piece, phi) and (is_loop or phi not in brought)
            }
            for phi in piece.phis:
                if phi in made:
                    slots.set_lane(phi, made[phi])
            for i in piece.instructions:
                if self._is_in_lane(stretch, piece, i):
                    slots.set_lane(i, self._in_lane(i, piece, lane))
            targets = [
                self._way(stretch, piece, s, blocks, out, len(successors)) for s in successors
            ]
            ways += [(piece, b.block, s) for s in successors if stretch.is_inside(piece, s)]
            if len(targets) > 1:
                b.branch(slots.lane(condition_of(piece)), *targets)
            else:
                b.jump(targets[0] if targets else out)
        for phi in stretch.entry.phis:
            if phi in made:
                b.add_incoming(made[phi], brought[phi], before)
        for piece, block, after in ways:
            for phi, value in self.traffic.edge(piece, after):
                b.add_incoming(made[phi], slots.lane(value), block)
        b.go(out)
        slots.end_lane()

    def _brought(self, phi: Instruction) -> Value:
        """Return what the way into a stretch brings to a phi."""
        if self.shapes.is_divergent(phi):
            return self.slots.incoming_lane(phi)
        return self.slots.from_first(phi, self.slots.incoming_scalar(phi))

    def _way(
        self,
        stretch: Stretch,
        piece: Piece,
        after: Piece,
        blocks: Mapping[Piece, Block],
        out: Block,
        count: int,
    ) -> Block:
        """Return where a thread goes on the way from a piece to another one; append what that keeps."""
        if stretch.is_inside(piece, after):
            return blocks[after]
        is_shared = piece in stretch.spine and piece not in stretch.core_of
        kept = [
            (phi, value)
            for phi, value in self._edges(piece, after)
            if self.shapes.is_divergent(phi) or not is_shared
        ]
        if not kept:
            return out
        b = self.frame.b
        here = b.block
        if count > 1 and not is_shared:
            way = self.frame.new_block("thread.leaves")
            b.go(way)
        for phi, value in kept:
            made, place = self.slots.lane(value), self.slots.incoming(phi)
            if self.shapes.is_divergent(phi):
                self.frame.put(made, place, self.slots.current_lane)
            else:
                b.store(self.slots.shared(phi, made), place)
        if count > 1 and not is_shared:
            b.jump(out)
            b.go(here)
            return way
        return out

    def _in_lane(self, instruction: Instruction, piece: Piece, lane: Value) -> Value:
        name = instruction.callee if instruction.opcode == Opcode.CALL else ""
        is_place = name.startswith(REGISTERS) or name in SHARED_MEMORY
        if (is_place and not self.shapes.is_divergent(instruction)) or (
            instruction.opcode == Opcode.ALLOCA
        ):
            return self.slots.from_first(instruction, self._scalar(instruction))
        return self._lane(instruction, lane, piece)


def _following(stretch: Stretch, known: Mapping[Value, bool]) -> dict[Piece, list[Piece]]:
    """Return the pieces that can be reached, each with those that can follow it."""
    found: dict[Piece, list[Piece]] = {}
    reached = {stretch.entry}
    for piece in stretch.pieces:
        if piece not in reached:
            continue
        after = piece.successors
        if piece.condition is not None:
            if piece not in stretch.core_of:
                # All threads go the same way, which is chosen behind the loop.
                after = list(piece.successors)
            elif condition_of(piece) in known:
                after = [piece.successors[0 if known[condition_of(piece)] else 1]]
        found[piece] = after
        reached.update(s for s in after if stretch.is_inside(piece, s))
    return found
