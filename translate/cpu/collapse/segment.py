"""Segments: the code from one barrier to the next ones, as a loop over the strips of the block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Block, Type, Value
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.piece import Graph, Piece
from mlir_offload.translate.cpu.collapse.place import LARGEST_BLOCK, BlockPlace, StripPlace
from mlir_offload.translate.cpu.collapse.region import Region
from mlir_offload.translate.cpu.collapse.shape import Geometry, Shapes
from mlir_offload.translate.cpu.collapse.slot import Slots
from mlir_offload.translate.cpu.collapse.traffic import Traffic

END = -1


class Writer(Protocol):
    """The writer of the pieces of a kernel."""

    frame: Frame
    graph: Graph
    shapes: Shapes
    geometry: Geometry
    block: BlockPlace
    traffic: Traffic
    strip: StripPlace
    slots: Slots
    crossing: Crossing
    is_always_masked: bool
    has_masks: bool
    has_assertions: bool

    def label(self, piece: Piece, *, is_masked: bool) -> Block:
        """Return the first basic block of a piece in the current segment."""

    def region(self, piece: Piece) -> Region | None:
        """Return the region that contains the piece; None if there is none."""

    def segment_number(self, start: Piece) -> int:
        """Return the number of the segment that begins at a piece."""

    def threads_at(self, number: int) -> Value:
        """Return a vector of i1: the lanes whose next piece has this number; END if they have exited."""

    def set_places(self, places: Value) -> None:
        """Set the piece that each lane executes next, by a vector of piece numbers."""

    def write_pieces(self, pieces: list[Piece]) -> None:
        """Write the code of pieces in each form that is needed."""

    def repeat(self, value: Value) -> Value:
        """Return the value of lane 0, rematerialized from kernel arguments and IDs."""


class Crossing:
    """The state of all strips of the block at barriers: live values, masks, and the number of the next segment."""

    def __init__(self, writer: Writer) -> None:
        """Allocate the number of the next segment; other memory is allocated on first use."""
        self._writer = writer
        frame = writer.frame
        self.next = frame.variable(frame.i32, "next")
        self._masks: Value | None = None

    @property
    def mask_type(self) -> Type:
        """Return the type of a mask: a bit for each lane; for a row, an i8 that is 0 or not."""
        geometry = self._writer.geometry
        return self._writer.frame.context.integer(8 if geometry.is_any_width else geometry.lanes)

    def _strips(self) -> int:
        geometry = self._writer.geometry
        return LARGEST_BLOCK if geometry.is_any_width else LARGEST_BLOCK // geometry.lanes

    def mask_address(self) -> Value:
        """Return the address of the mask of the current strip."""
        frame = self._writer.frame
        if self._masks is None:
            made = self.mask_type.array(self._strips())
            self._masks = frame.entry.alloca(made, "masks", align=8)
        return frame.b.offset(self.mask_type, self._masks, self._writer.strip.strip)

    def address(self, value: Value) -> Value:
        """Return the address of a value of the current strip that is live across a barrier."""
        writer, frame = self._writer, self._writer.frame
        is_divergent = writer.shapes.is_divergent(value)
        count = LARGEST_BLOCK if is_divergent else self._strips()
        memory = frame.block_memory((value, is_divergent), value.type, count, "waiting")
        place = writer.strip.first if is_divergent else writer.strip.strip
        return frame.element(value.type, memory, place)


class Segment:
    """A segment (PoCL: parallel region): one loop over strips, from a barrier or the kernel entry to the next barriers."""

    def __init__(self, writer: Writer, start: Piece, number: int) -> None:
        """Find the pieces up to the next barriers."""
        self._writer = writer
        self.start = start
        self.number = number
        self.pieces = pieces_from(writer.graph, start)
        frame = writer.frame
        self.begin = frame.new_block(f"segment{number}")
        self.end = frame.new_block("strip.end")
        self._step = frame.new_block("strip.next")
        self._apart: Block | None = None
        self._arrivals: dict[Piece, Block] = {}
        barriers = [p for p in self.pieces if p.is_barrier]
        self._exits = [p.successors[0] for p in barriers]
        no_place = frame.pointer.null
        self._places = {p.successors[0]: p.place or no_place for p in barriers}

    def write(self, begins: Mapping[Piece, Block], done: Block) -> None:
        """Write the loop, its pieces, and the jump to the next segment."""
        writer, frame, b = self._writer, self._writer.frame, self._writer.frame.b
        crossing = writer.crossing
        head, out = frame.new_block("strip"), frame.new_block("segment.out")
        b.go(self.begin)
        b.store(frame.number(0), crossing.next)
        writer.strip.start()
        b.jump(head)
        b.go(head)
        self._enter()
        writer.write_pieces(self.pieces)
        self._write_ends()
        b.go(self._step)
        has_more = writer.strip.has_more
        writer.strip.step()
        b.branch(has_more, head, out)
        b.go(out)
        self._go_on(begins, done)

    def _enter(self) -> None:
        """Append the entry of a strip: skip it if no thread waits, restore its values, jump to the first piece."""
        writer, frame, b = self._writer, self._writer.frame, self._writer.frame.b
        places: Value | None = None
        if self.number and writer.has_masks:
            bits = b.load(writer.crossing.mask_type, writer.crossing.mask_address())
            run = frame.new_block("strip.run")
            b.branch(b.compare(Predicate.EQ, bits, bits.type.null), self._step, run)
            b.go(run)
            if not writer.geometry.is_any_width:
                places = b.cast(Opcode.BITCAST, bits, frame.i1.vector(writer.geometry.lanes))
        writer.strip.find_threads()
        if self.number:
            self._restore()
        if writer.is_always_masked:
            places = writer.strip.exists() if places is None else places
            self._start_masked(places)
        elif places is None or writer.region(self.start) is None:
            b.jump(writer.label(self.start, is_masked=False))
        else:
            masked = frame.new_block("strip.masked")
            b.branch(frame.all_of(places), writer.label(self.start, is_masked=False), masked)
            b.go(masked)
            self._start_masked(places)

    def _start_masked(self, threads: Value) -> None:
        writer, b = self._writer, self._writer.frame.b
        lanes = writer.geometry.lanes
        here, gone = (writer.frame.constants([n] * lanes) for n in (self.start.number, END))
        writer.set_places(b.select(threads, here, gone))
        b.jump(writer.label(self.start, is_masked=True))

    def _restore(self) -> None:
        """Restore or rematerialize the values that are live across the barrier."""
        writer, b = self._writer, self._writer.frame.b
        writer.slots.begin()
        for value in writer.traffic.live(self.start):
            if writer.traffic.is_repeatable(value):
                writer.repeat(value)
            elif writer.shapes.is_divergent(value):
                if writer.geometry.is_any_width:
                    continue
                address = writer.crossing.address(value)
                writer.frame.copy(value.type, address, writer.slots.slot(value))
            else:
                loaded = b.load(value.type, writer.crossing.address(value))
                b.store(loaded, writer.slots.slot(value))

    def _save(self, start: Piece) -> None:
        """Save the values that are live at the start of a segment."""
        writer, b = self._writer, self._writer.frame.b
        writer.slots.begin()
        for value in writer.traffic.live(start):
            is_divergent = writer.shapes.is_divergent(value)
            if writer.traffic.is_repeatable(value) or (
                is_divergent and writer.geometry.is_any_width
            ):
                continue
            address = writer.crossing.address(value)
            if is_divergent:
                writer.frame.copy(value.type, writer.slots.slot(value), address)
            else:
                b.store(b.load(value.type, writer.slots.slot(value)), address)

    # Ends of strips -----------------------------------------------------------------------

    def arrival(self, start: Piece) -> Block:
        """Return the basic block to which coherent code jumps at a barrier; `start` is the piece after it."""
        if start not in self._arrivals:
            self._arrivals[start] = self._writer.frame.new_block("arrive")
        return self._arrivals[start]

    def after_region(self, region: Region | None) -> Block:
        """Return the basic block to which masked code jumps after a region."""
        join = region.join if region is not None else None
        if join is None or join not in self.pieces:
            if self._apart is None:
                self._apart = self._writer.frame.new_block("strip.apart")
            return self._apart
        return self._writer.label(join, is_masked=False)

    def _write_ends(self) -> None:
        writer, b = self._writer, self._writer.frame.b
        for start, block in self._arrivals.items():
            b.go(block)
            if writer.has_masks:
                mask = writer.frame.number(-1, writer.crossing.mask_type)
                b.store(mask, writer.crossing.mask_address())
            self._save(start)
            self._agree_on(start)
        if self._apart is not None:
            b.go(self._apart)
            self._write_apart()
        b.go(self.end)
        if writer.has_masks:
            b.store(writer.crossing.mask_type.null, writer.crossing.mask_address())
        b.jump(self._step)

    def _write_apart(self) -> None:
        """Append the end of a strip in masked code, whose threads have exited or wait at a barrier."""
        writer, frame, b = self._writer, self._writer.frame, self._writer.frame.b
        gone = writer.threads_at(END)
        rest = frame.new_block("strip.waits")
        b.branch(frame.all_of(gone), self.end, rest)
        b.go(rest)
        at: list[tuple[Value, Value]] = []
        for start in dict.fromkeys(self._exits):
            waiting = writer.threads_at(start.number)
            agreed, other = frame.new_block("strip.agreed"), frame.new_block("strip.other")
            is_agreed = frame.all_of(b.binary(Opcode.OR, waiting, gone))
            b.branch(is_agreed, agreed, other)
            b.go(agreed)
            if writer.has_masks:
                b.store(frame.bits(waiting), writer.crossing.mask_address())
            self._save(start)
            self._agree_on(start)
            b.go(other)
            at.append((frame.any_of(waiting), self._places[start]))
        self._disagree(self._first_place(at), self._first_place(reversed(at)))

    def _agree_on(self, start: Piece) -> None:
        """Append a check that all strips wait at the same barrier, and the jump to the next strip."""
        writer, frame, b = self._writer, self._writer.frame, self._writer.frame.b
        number = writer.segment_number(start)
        if len(set(self._exits)) > 1:
            before = b.load(frame.i32, writer.crossing.next)
            agreed, checked = frame.new_block("agreed"), frame.new_block("check")
            b.branch(b.compare(Predicate.EQ, before, frame.number(0)), agreed, checked)
            b.go(checked)
            wrong = frame.new_block("wrong")
            b.branch(b.compare(Predicate.EQ, before, frame.number(number)), agreed, wrong)
            b.go(wrong)
            others = (
                (b.compare(Predicate.EQ, before, frame.number(writer.segment_number(o))), place)
                for o, place in self._places.items()
            )
            self._disagree(self._places[start], self._first_place(others))
            b.go(agreed)
        b.store(frame.number(number), writer.crossing.next)
        b.jump(self._step)

    def _first_place(self, places: Iterable[tuple[Value, Value]]) -> Value:
        """Append a selection of the first source location whose condition holds."""
        found = self._writer.frame.pointer.null
        for condition, place in reversed(tuple(places)):
            found = self._writer.frame.b.select(condition, place, found)
        return found

    def _disagree(self, first: Value, second: Value) -> None:
        """Append a fatal error: threads wait at barriers with two source locations."""
        writer, frame, b = self._writer, self._writer.frame, self._writer.frame.b
        context = frame.context
        type_ = context.function_type(context.void, [frame.pointer] * 3)
        disagree = frame.module.declare("mo_cpu_disagree", type_)
        b.call(disagree, [writer.block.block, first, second])
        b.jump(self._step)

    def _go_on(self, begins: Mapping[Piece, Block], done: Block) -> None:
        writer, frame, b = self._writer, self._writer.frame, self._writer.frame.b
        exits = list(dict.fromkeys(self._exits))
        if not exits:
            b.jump(done)
            return
        if writer.has_assertions:
            type_ = frame.context.function_type(frame.i32, [frame.pointer])
            has_failed = frame.module.declare("mo_cpu_has_failed", type_)
            answer = b.call(has_failed, [writer.block.block])
            on = frame.new_block("goes.on")
            b.branch(b.compare(Predicate.EQ, answer, frame.number(0)), on, done)
            b.go(on)
        cases = [(writer.segment_number(start), begins[start]) for start in exits]
        b.switch(b.load(frame.i32, writer.crossing.next), done, cases)


def pieces_from(graph: Graph, start: Piece) -> list[Piece]:
    """Return the pieces up to the next barriers, in topological order."""
    seen = {start}
    work = [start]
    while work:
        piece = work.pop()
        for after in () if piece.is_barrier else piece.successors:
            if after not in seen:
                seen.add(after)
                work.append(after)
    return [piece for piece in graph.order if piece in seen]
