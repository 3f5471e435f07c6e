"""The writer for strips of threads: coherent code and masked code."""

from __future__ import annotations

from collections.abc import Mapping

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Block, Value
from mlir_offload.translate.cpu.collapse.base import KernelWriter
from mlir_offload.translate.cpu.collapse.collective import write_collective
from mlir_offload.translate.cpu.collapse.exchange import Exchange, ExchangeCode, Exchanges
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.instruction import calls_libm
from mlir_offload.translate.cpu.collapse.lone import lone_numbers, lone_pieces, lone_successor
from mlir_offload.translate.cpu.collapse.piece import Graph, Piece, condition_of
from mlir_offload.translate.cpu.collapse.place import BlockPlace
from mlir_offload.translate.cpu.collapse.region import (
    Region,
    beyond_barriers,
    merge_regions,
    whole_kernel,
)
from mlir_offload.translate.cpu.collapse.segment import END
from mlir_offload.translate.cpu.collapse.shape import Geometry, Shapes
from mlir_offload.translate.cpu.collapse.traffic import Traffic


class StripWriter(KernelWriter):
    """Writes a kernel for strips, with a loop over lanes for each piece.

    Coherent code is executed if all lanes of a strip are at the same piece. In masked code, each lane has the
    number of the piece that it executes next. The pieces of a region follow each other in topological order, and
    each is executed for the lanes that are at it.
    """

    def __init__(
        self,
        frame: Frame,
        graph: Graph,
        shapes: Shapes,
        geometry: Geometry,
        block: BlockPlace,
        arguments: Mapping[Value, Value],
    ) -> None:
        """Find the regions of masked code, and allocate the piece numbers and the mask of the lanes."""
        self.is_always_masked = not geometry.is_row
        regions = [beyond_barriers(graph, region) for region in shapes.branches.values()]
        if self.is_always_masked:
            regions = [whole_kernel(graph)]
        self._region = {
            piece: region for region in merge_regions(graph, regions) for piece in region.pieces
        }
        self._joins = {region.join for region in shapes.branches.values()}
        self._lone = lone_pieces(shapes, graph)
        exchanges = Exchanges(graph, shapes, frame.module)
        found = {p: exchanges.alone(p) for p in graph.order if p not in self._lone}
        self._exchanges = {piece: exchange for piece, exchange in found.items() if exchange}
        self._needed = {p: tuple(exchanges.needed(e)) for p, e in self._exchanges.items()}
        super().__init__(frame, graph, shapes, geometry, block, arguments)
        self._where = frame.array(frame.i32, "where")
        self._here = frame.array(frame.i1, "here")
        self._lone_lanes = {
            branch: frame.variable(frame.i64, "lone") for branch in set(self._lone.values())
        }

    def _make_traffic(self) -> Traffic:
        return Traffic(self.graph, self.shapes, needed=self._needed)

    def _may_leave_before_barriers(self) -> bool:
        waits = any(piece.is_barrier and piece in self._region for piece in self.graph.order)
        return self.is_always_masked or waits or super()._may_leave_before_barriers()

    def region(self, piece: Piece) -> Region | None:
        """Return the region that contains the piece; None if it needs no masked code."""
        return self._region.get(piece)

    def write_pieces(self, pieces: list[Piece]) -> None:
        """Write the code of pieces in each form that is needed: coherent, masked, or both."""
        if not self.is_always_masked:
            for piece in pieces:
                self._write(piece, is_masked=False)
        for piece in pieces:
            if self.region(piece) is not None:
                self._write(piece, is_masked=True)

    # Pieces -------------------------------------------------------------------------------

    def _write(self, piece: Piece, *, is_masked: bool) -> None:
        b = self.frame.b
        b.go(self.label(piece, is_masked=is_masked))
        if is_masked and not self._is_continued(piece):
            self._mask = self._enter_masked(piece)
        mask = self._mask if is_masked else None
        self.slots.begin(is_masked=is_masked)
        self._write_shared(piece)
        if piece.collective is not None:
            write_collective(self.frame, self.slots, piece.collective, mask)
        if piece in self._exchanges:
            self._exchange(self._exchanges[piece], mask)
        self._run_lanes(piece, mask)
        for successor in piece.successors:
            for phi, value in self.traffic.edge(piece, successor):
                if not self.shapes.is_divergent(phi):
                    b.store(self.slots.scalar(value), self.slots.incoming(phi))
        if mask is not None:
            self._leave_masked(piece, mask)
        else:
            self._leave_coherent(piece)

    def _write_shared(self, piece: Piece) -> None:
        """Append the uniform and linear values of a piece, which are computed once for the strip."""
        for phi in piece.phis:
            if not self.shapes.is_divergent(phi):
                self.slots.set_scalar(phi, self.slots.incoming_scalar(phi))
        for instruction in piece.instructions:
            if not self.shapes.is_divergent(instruction):
                self.slots.set_scalar(instruction, self.scalar(instruction))

    def _run_lanes(self, piece: Piece, mask: Value | None) -> None:
        """Append the loop over the lanes in `mask` that computes the divergent values of a piece."""
        shapes, slots = self.shapes, self.slots
        phis = [phi for phi in piece.phis if shapes.is_divergent(phi)]
        work = [i for i in piece.instructions if shapes.is_divergent(i)]
        if piece in self._exchanges:
            work = []
        edges = [
            (phi, value)
            for successor in piece.successors
            for phi, value in self.traffic.edge(piece, successor)
            if shapes.is_divergent(phi)
        ]
        if not (phis or work or edges):
            return
        needed = [operand for i in work for operand in self.graph.operands[i]]
        for value in (*needed, *(value for _, value in edges)):
            if not shapes.is_divergent(value):
                slots.scalar(value)

        def body(lane: Value) -> None:
            slots.begin_lane(lane)
            for phi in phis:
                slots.set_lane(phi, slots.incoming_lane(phi))
            for instruction in work:
                slots.set_lane(instruction, self.lane(instruction, lane, piece))
            for phi, value in edges:
                self.frame.put(slots.lane(value), slots.incoming(phi), lane)
            slots.end_lane()

        if mask is not None and piece in self._lone:
            body(self.frame.b.load(self.frame.i64, self._lone_lanes[self._lone[piece]]))
            return
        guard = None if mask is None else self._here
        vectors = self.geometry.lanes // _LANES_OF_CALL if any(map(calls_libm, work)) else 0
        self.frame.loop(
            body, guard=guard, is_parallel=self.can_be_parallel([piece]), vectors=vectors
        )

    def _exchange(self, exchange: Exchange, mask: Value | None) -> None:
        """Append a load or store of the lanes in `mask`, of which each accesses another element."""
        slots, access = self.slots, exchange.access
        address = self._of_first_lane(exchange.address)
        code = ExchangeCode(self.frame, exchange, address, [*map(slots.scalar, exchange.distances)])
        if access.opcode == Opcode.LOAD:
            made = code.load(access, slots.slot(access), mask)
        else:
            made = code.store(access, slots.all_lanes(self.graph.operands[access][0]), mask)
        for part in made:
            self._mark_memory(access, part)

    # Control ------------------------------------------------------------------------------

    def _leave_coherent(self, piece: Piece) -> None:
        b = self.frame.b
        if piece.is_barrier:
            b.jump(self.segment.arrival(piece.successors[0]))
        elif not piece.successors:
            b.jump(self.segment.end)
        elif len(piece.successors) == 1:
            b.jump(self.label(piece.successors[0], is_masked=False))
        elif self.shapes.is_uniform(condition_of(piece)):
            then, other = (self.label(s, is_masked=False) for s in piece.successors)
            branch = b.branch(self.slots.scalar(condition_of(piece)), then, other)
            if any(self._is_short_loop(piece, after) for after in piece.successors):
                self.frame.unroll(branch)
        else:
            self._part(piece)

    def _is_short_loop(self, latch: Piece, header: Piece) -> bool:
        """Return whether an edge goes back to the header of a loop that has few instructions."""
        body = self.graph.loops.get(header, set())
        count = sum(len(piece.instructions) for piece in body)
        return latch in body and count <= _MOST_UNROLLED and not any(p.is_barrier for p in body)

    def _part(self, piece: Piece) -> None:
        """Append a divergent branch: to coherent code if all lanes agree, otherwise to masked code."""
        frame, b = self.frame, self.frame.b
        then, other = piece.successors
        lone, mixed = lone_successor(self.shapes, self.graph, piece), frame.new_block("mixed")
        if lone is None:
            chosen = self.slots.all_lanes(condition_of(piece))
            some = frame.new_block("some")
            b.branch(frame.all_of(chosen), self.label(then, is_masked=False), some)
            b.go(some)
            exists = frame.any_of(chosen)
        else:
            then, other = (then, other) if lone is then else (other, then)
            exists, chosen = self._choose_lane(piece, is_chosen_if=lone is piece.successors[0])
        b.branch(exists, mixed, self.label(other, is_masked=False))
        b.go(mixed)
        self.set_places(b.select(chosen, self._splat(then.number), self._splat(other.number)))
        region = self.region(piece) or self.region(then) or self.region(other)
        inside = [s for s in piece.successors if region is not None and s in region.pieces]
        b.jump(self.label(min(inside, key=self.graph.position.__getitem__), is_masked=True))

    def _choose_lane(self, piece: Piece, *, is_chosen_if: bool) -> tuple[Value, Value]:
        """Append the choice of one lane; return whether there is one, and a vector of i1 in which it is set."""
        frame, b = self.frame, self.frame.b
        numbers = lone_numbers(self.shapes, self.graph, piece)
        if numbers:
            distance = b.binary(Opcode.SUB, *map(self.slots.scalar, numbers))
            exists = b.compare(
                Predicate.ULT, distance, frame.number(self.geometry.lanes, distance.type)
            )
            lanes = frame.constants(list(range(self.geometry.lanes)), distance.type)
            chosen = b.compare(Predicate.EQ, b.splat(distance, self.geometry.lanes), lanes)
            is_narrow = distance.type.bits < frame.i64.bits
            lane = b.cast(Opcode.ZEXT if is_narrow else Opcode.TRUNC, distance, frame.i64)
        else:
            condition = self.slots.all_lanes(condition_of(piece))
            order = Predicate.NE if is_chosen_if else Predicate.EQ
            chosen = b.compare(order, condition, condition.type.null)
            exists, lane = frame.any_of(chosen), frame.first_of(chosen)
        self._note_lane(piece, lane)
        return exists, chosen

    def _note_lane(self, piece: Piece, lane: Value) -> None:
        """Append a store of the lane that a branch has chosen, for the code that only this lane executes."""
        if piece in self._lone_lanes:
            self.frame.b.store(lane, self._lone_lanes[piece])

    def _splat(self, number: int) -> Value:
        return self.frame.constants([number] * self.geometry.lanes)

    def places(self) -> Value:
        """Return the number of the next piece of each lane, in masked code."""
        return self.frame.get_all(self.frame.i32, self._where)

    def set_places(self, places: Value) -> None:
        """Set the piece that each lane executes next, by a vector of piece numbers."""
        self.frame.put_all(places, self._where, self.frame.i32)

    def threads_at(self, number: int) -> Value:
        """Return a vector of i1: the lanes whose next piece has this number; END if they have exited."""
        return self.frame.b.compare(Predicate.EQ, self.places(), self._splat(number))

    def _enter_masked(self, piece: Piece) -> Value:
        """Begin a masked piece, and skip it if no lane is at it; return the mask of the lanes that are."""
        frame, b = self.frame, self.frame.b
        mask = self.threads_at(piece.number)
        if piece in self._joins and not self.is_always_masked:
            apart = frame.new_block("apart")
            b.branch(frame.all_of(mask), self.label(piece, is_masked=False), apart)
            b.go(apart)
        run = frame.new_block(f"masked{piece.number}.run")
        b.branch(frame.any_of(mask), run, self._next_masked(piece))
        b.go(run)
        frame.put_all(mask, self._here, frame.i1)
        return mask

    def _next_masked(self, piece: Piece) -> Block:
        region = self.region(piece)
        position = self.graph.position
        following = [
            other
            for other in self.segment.pieces
            if position[other] > position[piece]
            and self.region(other) is region
            and not self._is_continued(other)
        ]
        if following:
            return self.label(following[0], is_masked=True)
        return self.segment.after_region(region)

    def _is_continued(self, piece: Piece) -> bool:
        """Return whether exactly the lanes that have executed the previous piece of masked code execute a piece."""
        position, order = self.graph.position[piece], self.graph.order
        before = order[position - 1]
        return (
            piece.predecessors == [before]
            and len(before.successors) == 1
            and not before.is_barrier
            and piece not in self._joins
            and self.region(before) is self.region(piece)
        )

    def _leave_masked(self, piece: Piece, mask: Value) -> None:
        frame, b = self.frame, self.frame.b
        after = next(iter(piece.successors), None)
        if after is not None and after.predecessors == [piece] and self._is_continued(after):
            b.jump(self.label(after, is_masked=True))
            return
        targets = self._targets(piece)
        self.set_places(b.select(mask, targets, self.places()))
        lone = lone_successor(self.shapes, self.graph, piece)
        if lone is not None:
            chosen = b.compare(Predicate.EQ, targets, self._splat(lone.number))
            self._note_lane(piece, frame.first_of(b.binary(Opcode.AND, mask, chosen)))
        back = [
            after
            for after in piece.successors
            if not piece.is_barrier
            and self.graph.position[after] <= self.graph.position[piece]
            and self.region(after) is self.region(piece)
        ]
        if back:
            again = frame.any_of(self.threads_at(back[0].number))
            b.branch(again, self.label(back[0], is_masked=True), self._next_masked(piece))
        else:
            b.jump(self._next_masked(piece))

    def _targets(self, piece: Piece) -> Value:
        """Return the number of the next piece for each lane that executes a piece."""
        if not piece.successors:
            return self._splat(END)
        numbers = [self._splat(after.number) for after in piece.successors]
        if len(numbers) == 1:
            return numbers[0]
        condition = condition_of(piece)
        if self.shapes.is_uniform(condition):
            return self.frame.b.select(self.slots.scalar(condition), *numbers)
        return self.frame.b.select(self.slots.all_lanes(condition), *numbers)


_MOST_UNROLLED = 16
# Of the vector variants of libm that LLVM calls, for f32.
_LANES_OF_CALL = 8
