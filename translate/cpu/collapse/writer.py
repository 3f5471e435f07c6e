"""A kernel's pieces written for strips of threads, coherent and masked."""

from __future__ import annotations

from collections.abc import Mapping

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Block, Instruction, Value
from mlir_offload.translate.cpu.collapse.collective import write_collective
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.instruction import calls_libm, plain_update
from mlir_offload.translate.cpu.collapse.piece import (
    ASSERTION,
    REGISTERS,
    SHARED_MEMORY,
    CannotCollapseError,
    Graph,
    Piece,
    condition_of,
)
from mlir_offload.translate.cpu.collapse.place import BlockPlace, StripPlace
from mlir_offload.translate.cpu.collapse.region import (
    Region,
    beyond_barriers,
    merge_regions,
    whole_kernel,
)
from mlir_offload.translate.cpu.collapse.segment import END, Crossing, Segment, pieces_from
from mlir_offload.translate.cpu.collapse.shape import Geometry, Shapes
from mlir_offload.translate.cpu.collapse.slot import Slots
from mlir_offload.translate.cpu.collapse.traffic import Traffic


class StripWriter:
    """Writes one version of a kernel into the function that runs a block.

    Coherent code runs if all threads of a strip are at the same place. In masked code each thread has
    the number of the piece where it is; a piece runs for the threads that are there, and the pieces of
    a region follow each other in topological order.
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
        """Take memory for what the pieces need of each other."""
        self.frame = frame
        self.graph = graph
        self.shapes = shapes
        self.geometry = geometry
        self.block = block
        frame.lanes = geometry.lanes
        self.traffic = Traffic(graph, shapes)
        self.strip = StripPlace(frame, block, geometry)
        self.slots = Slots(frame, graph, shapes, self.traffic, self.strip, arguments)
        self.is_always_masked = not geometry.is_row
        regions = [beyond_barriers(graph, region) for region in shapes.branches.values()]
        if self.is_always_masked:
            regions = [whole_kernel(graph)]
        self._region = {
            piece: region for region in merge_regions(graph, regions) for piece in region.pieces
        }
        self._joins = {region.join for region in shapes.branches.values()}
        self._where = frame.array(frame.i32, "where")
        self._here = frame.array(frame.i1, "here")
        self._labels: dict[tuple[Piece, bool], Block] = {}
        self._segment: Segment | None = None
        self._starts = [
            graph.entry,
            *(piece.successors[0] for piece in graph.order if piece.is_barrier),
        ]
        self.crossing = Crossing(self)
        self.has_masks = self.is_always_masked or self._may_leave_before_barriers()
        self.has_assertions = any(
            i.opcode == Opcode.CALL and i.callee == ASSERTION
            for piece in graph.order
            for i in piece.instructions
        )

    # Segments -----------------------------------------------------------------------------

    def write(self, done: Block) -> Block:
        """Write the code of all segments; return the block where it begins."""
        segments = [Segment(self, start, number) for number, start in enumerate(self._starts)]
        if sum(len(segment.pieces) for segment in segments) > _MOST_WRITTEN:
            msg = "its code would grow too much"
            raise CannotCollapseError(msg)
        begins = {segment.start: segment.begin for segment in segments}
        for segment in segments:
            self._segment = segment
            self._labels = {}
            segment.write(begins, done)
        return segments[0].begin

    @property
    def segment(self) -> Segment:
        """Return the segment that is being written."""
        if self._segment is None:
            msg = "no segment is being written"
            raise ValueError(msg)
        return self._segment

    def segment_number(self, start: Piece) -> int:
        """Return the number of the segment that begins at a piece."""
        return self._starts.index(start)

    def _may_leave_before_barriers(self) -> bool:
        """Say whether some strips, or some threads of a strip, may not come to a barrier."""
        if any(piece.is_barrier and piece in self._region for piece in self.graph.order):
            return True
        for start in self._starts:
            ends = {
                p.is_barrier
                for p in pieces_from(self.graph, start)
                if p.is_barrier or not p.successors
            }
            if len(ends) > 1:
                return True
        return False

    def repeat(self, value: Value) -> Value:
        """Compute a value again from arguments and ids."""
        if not isinstance(value, Instruction):
            return self.slots.scalar(value)
        known = self.slots.known_scalar(value)
        if known is None:
            if value.opcode not in (Opcode.CALL, Opcode.ALLOCA):
                for operand in self.graph.operands[value]:
                    self.repeat(operand)
            known = self._scalar(value)
            self.slots.set_scalar(value, known)
        return known

    def label(self, piece: Piece, *, is_masked: bool) -> Block:
        """Return the block where a piece begins in the current segment."""
        key = (piece, is_masked)
        found = self._labels.get(key)
        if found is None:
            name = f"{'masked' if is_masked else 'piece'}{piece.number}"
            found = self._labels[key] = self.frame.new_block(name)
        return found

    def region(self, piece: Piece) -> Region | None:
        """Return the region that the piece belongs to."""
        return self._region.get(piece)

    def write_pieces(self, pieces: list[Piece]) -> None:
        """Write the code of pieces, as often as it is needed."""
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
        mask = self._enter_masked(piece) if is_masked else None
        self.slots.begin()
        for phi in piece.phis:
            if not self.shapes.is_divergent(phi):
                self.slots.set_scalar(phi, self.slots.incoming_scalar(phi))
        for instruction in piece.instructions:
            if not self.shapes.is_divergent(instruction):
                self.slots.set_scalar(instruction, self._scalar(instruction))
        if piece.collective is not None:
            write_collective(self.frame, self.slots, piece.collective, mask)
        self._run_lanes(piece, guard=self._here if is_masked else None)
        for successor in piece.successors:
            for phi, value in self.traffic.edge(piece, successor):
                if not self.shapes.is_divergent(phi):
                    b.store(self.slots.scalar(value), self.slots.incoming(phi))
        if mask is not None:
            self._leave_masked(piece, mask)
        else:
            self._leave_coherent(piece)

    def _scalar(self, instruction: Instruction) -> Value:
        """Append an instruction for lane 0."""
        name = instruction.callee if instruction.opcode == Opcode.CALL else ""
        if name.startswith(REGISTERS):
            return self.strip.register(name.removeprefix(REGISTERS))
        if name in SHARED_MEMORY:
            is_static = name == SHARED_MEMORY[0]
            return self.block.static_shared if is_static else self.block.dynamic_shared
        if instruction.opcode == Opcode.ALLOCA:
            return self.slots.private(instruction)
        operands = [self._of_first_lane(operand) for operand in self.graph.operands[instruction]]
        made = self.frame.b.clone(instruction, operands)
        self._mark_memory(instruction, made)
        return made

    def _of_first_lane(self, value: Value) -> Value:
        """Return the value of lane 0; that of a divergent one, for a comparison that is uniform."""
        if isinstance(value, Instruction) and self.shapes.is_divergent(value):
            return self._scalar(value)
        return self.slots.scalar(value)

    def _mark_memory(self, access: Instruction, made: Instruction) -> None:
        """Mark the copy of a load or a store by the memory that it is in."""
        if access.opcode not in (Opcode.LOAD, Opcode.STORE):
            return
        address = self.graph.operands[access][access.opcode == Opcode.STORE]
        if self.slots.is_workgroup_memory(address):
            self.frame.mark_workgroup(made, is_inside=True)
        elif self.slots.is_other_memory(address):
            self.frame.mark_workgroup(made, is_inside=False)

    def _run_lanes(self, piece: Piece, guard: Value | None) -> None:
        """Append the loop over lanes of what is divergent."""
        shapes, slots = self.shapes, self.slots
        phis = [phi for phi in piece.phis if shapes.is_divergent(phi)]
        work = [i for i in piece.instructions if shapes.is_divergent(i)]
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
                slots.set_lane(instruction, self._lane(instruction, lane, piece))
            for phi, value in edges:
                self.frame.put(slots.lane(value), slots.incoming(phi), lane)
            slots.end_lane()

        has_calls = any(calls_libm(instruction) for instruction in work)
        self.frame.loop(body, guard=guard, is_parallel=not piece.is_serial, has_calls=has_calls)

    def _lane(self, instruction: Instruction, lane: Value, piece: Piece) -> Value:
        """Append an instruction for one lane, in a loop over lanes."""
        special = self._special(instruction, lane)
        if special is not None:
            return special
        operands = self.graph.operands[instruction]
        made = self.frame.b.clone(instruction, [self.slots.lane(operand) for operand in operands])
        if instruction.opcode in (Opcode.LOAD, Opcode.STORE) and not piece.is_serial:
            self.frame.mark_parallel(made)
        self._mark_memory(instruction, made)
        return made

    def _special(self, instruction: Instruction, lane: Value) -> Value | None:
        """Append an instruction that is not copied; None for one that is."""
        if instruction.opcode == Opcode.CALL:
            return self._call(instruction, lane)
        if instruction.opcode == Opcode.EXTRACT_VALUE:
            return self.slots.pair_part(instruction)
        if instruction.opcode == Opcode.RMW:
            address, operand = self.graph.operands[instruction]
            if self.slots.is_workgroup_memory(address):
                return plain_update(
                    self.frame.b, instruction, self.slots.lane(address), self.slots.lane(operand)
                )
        return None

    def _call(self, call: Instruction, lane: Value) -> Value | None:
        name, operands = call.callee, self.graph.operands[call]
        if name.startswith(REGISTERS):
            return self.strip.lane_register(name.removeprefix(REGISTERS), lane)
        if any(self.slots.is_item(operand) for operand in operands):
            x, y, z = (self.strip.id_of(axis, lane) for axis in "xyz")
            self.block.set_thread(x, y, z, self.strip.linear(lane))
        noted = self.frame.module.function("mo_cpu_note_failure") if name == ASSERTION else None
        if noted is None:
            return None
        return self.frame.b.call(noted, [self.slots.lane(operand) for operand in operands])

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
        """Say whether a jump goes back to the begin of a loop that has few instructions."""
        body = self.graph.loops.get(header, set())
        count = sum(len(piece.instructions) for piece in body)
        return latch in body and count <= _MOST_UNROLLED and not any(p.is_barrier for p in body)

    def _part(self, piece: Piece) -> None:
        """Append a divergent branch: to coherent code if all lanes agree, else to masked code."""
        frame, b = self.frame, self.frame.b
        then, other = piece.successors
        condition = self.slots.all_lanes(condition_of(piece))
        some, mixed = frame.new_block("some"), frame.new_block("mixed")
        b.branch(frame.all_of(condition), self.label(then, is_masked=False), some)
        b.go(some)
        b.branch(frame.any_of(condition), mixed, self.label(other, is_masked=False))
        b.go(mixed)
        self.set_places(b.select(condition, self._splat(then.number), self._splat(other.number)))
        region = self.region(piece) or self.region(then) or self.region(other)
        inside = [s for s in piece.successors if region is not None and s in region.pieces]
        b.jump(self.label(min(inside, key=self.graph.position.__getitem__), is_masked=True))

    def _splat(self, number: int) -> Value:
        return self.frame.constants([number] * self.geometry.lanes)

    def places(self) -> Value:
        """Return where the threads are, in masked code."""
        return self.frame.get_all(self.frame.i32, self._where)

    def set_places(self, places: Value) -> None:
        """Set where the threads are."""
        self.frame.put_all(places, self._where, self.frame.i32)

    def threads_at(self, number: int) -> Value:
        """Return a vector of i1: which threads are at a piece, or have left the kernel for END."""
        return self.frame.b.compare(Predicate.EQ, self.places(), self._splat(number))

    def _enter_masked(self, piece: Piece) -> Value:
        """Begin a masked piece: skip it if no thread is there."""
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
            if position[other] > position[piece] and self.region(other) is region
        ]
        if following:
            return self.label(following[0], is_masked=True)
        return self.segment.after_region(region)

    def _leave_masked(self, piece: Piece, mask: Value) -> None:
        frame, b = self.frame, self.frame.b
        self.set_places(b.select(mask, self._targets(piece), self.places()))
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
        """Return where the threads go from a piece."""
        if not piece.successors:
            return self._splat(END)
        numbers = [self._splat(after.number) for after in piece.successors]
        if len(numbers) == 1:
            return numbers[0]
        condition = condition_of(piece)
        if self.shapes.is_uniform(condition):
            return self.frame.b.select(self.slots.scalar(condition), *numbers)
        return self.frame.b.select(self.slots.all_lanes(condition), *numbers)


# Each is written up to four times: coherent and masked, for rows and for other strips.
_MOST_WRITTEN = 1500
_MOST_UNROLLED = 16
