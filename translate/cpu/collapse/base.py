"""The base class of the writers of a kernel: it writes segments, and single instructions of pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlir_offload.toolchain.llvmc.code import Opcode
from mlir_offload.toolchain.llvmc.ir import Block, Instruction, Type, Value
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.instruction import plain_update
from mlir_offload.translate.cpu.collapse.piece import (
    ASSERTION,
    REGISTERS,
    SHARED_MEMORY,
    CannotCollapseError,
    Graph,
    Piece,
)
from mlir_offload.translate.cpu.collapse.place import BlockPlace, StripPlace
from mlir_offload.translate.cpu.collapse.region import Region
from mlir_offload.translate.cpu.collapse.segment import Crossing, Segment, pieces_from
from mlir_offload.translate.cpu.collapse.shape import Geometry, Shapes
from mlir_offload.translate.cpu.collapse.slot import Slots
from mlir_offload.translate.cpu.collapse.traffic import Traffic


class KernelWriter:
    """Writes one version of a kernel into the block function, segment by segment."""

    is_always_masked = False

    def __init__(
        self,
        frame: Frame,
        graph: Graph,
        shapes: Shapes,
        geometry: Geometry,
        block: BlockPlace,
        arguments: Mapping[Value, Value],
    ) -> None:
        """Find the values that cross pieces, and the first pieces of the segments."""
        self.frame = frame
        self.graph = graph
        self.shapes = shapes
        self.geometry = geometry
        self.block = block
        frame.lanes = geometry.lanes
        self.strip = StripPlace(frame, block, geometry)
        self.traffic = self._make_traffic()
        self.slots = self._make_slots(arguments)
        self._labels: dict[tuple[Piece, bool], Block] = {}
        self._segment: Segment | None = None
        self._starts = [
            graph.entry,
            *(piece.successors[0] for piece in graph.order if piece.is_barrier),
        ]
        self.crossing = Crossing(self)
        self.has_masks = self._may_leave_before_barriers()
        self.has_assertions = any(
            i.opcode == Opcode.CALL and i.callee == ASSERTION
            for piece in graph.order
            for i in piece.instructions
        )

    def _make_traffic(self) -> Traffic:
        return Traffic(self.graph, self.shapes)

    def _make_slots(self, arguments: Mapping[Value, Value]) -> Slots:
        return Slots(self.frame, self.graph, self.shapes, self.traffic, self.strip, arguments)

    # Segments -----------------------------------------------------------------------------

    def write(self, done: Block) -> Block:
        """Write the code of all segments; return its first basic block."""
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
        """Return whether some threads may exit the kernel before a barrier that others reach."""
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
        """Return the value of lane 0, rematerialized from kernel arguments and IDs."""
        if not isinstance(value, Instruction):
            return self.slots.scalar(value)
        known = self.slots.known_scalar(value)
        if known is None:
            if value.opcode not in (Opcode.CALL, Opcode.ALLOCA):
                for operand in self.graph.operands[value]:
                    self.repeat(operand)
            known = self.scalar(value)
            self.slots.set_scalar(value, known)
        return known

    def label(self, piece: Piece, *, is_masked: bool) -> Block:
        """Return the first basic block of a piece in the current segment."""
        key = (piece, is_masked)
        found = self._labels.get(key)
        if found is None:
            name = f"{'masked' if is_masked else 'piece'}{piece.number}"
            found = self._labels[key] = self.frame.new_block(name)
        return found

    def region(self, piece: Piece) -> Region | None:  # noqa: ARG002 (of strips)
        """Return the divergent region that contains the piece; None, because only strips have masked code."""
        return None

    def set_places(self, places: Value) -> None:
        """Set the piece that each lane executes next, by a vector of piece numbers."""
        raise NotImplementedError

    def threads_at(self, number: int) -> Value:
        """Return a vector of i1: the lanes whose next piece has this number; END if they have exited."""
        raise NotImplementedError

    def write_pieces(self, pieces: list[Piece]) -> None:
        """Write the code of pieces in each form that is needed."""
        raise NotImplementedError

    # Instructions -------------------------------------------------------------------------

    def scalar(self, instruction: Instruction) -> Value:
        """Append an instruction for lane 0; return its value."""
        name = instruction.callee if instruction.opcode == Opcode.CALL else ""
        if name.startswith(REGISTERS):
            return self.strip.register(name.removeprefix(REGISTERS))
        if name in SHARED_MEMORY:
            is_static = name == SHARED_MEMORY[0]
            return self.block.static_shared if is_static else self.block.dynamic_shared
        if instruction.opcode == Opcode.ALLOCA:
            return self.slots.private(instruction)
        if self.shapes.is_lane(instruction):
            return instruction.type.null
        operands = [self._of_first_lane(operand) for operand in self.graph.operands[instruction]]
        if self.slots.is_masked and instruction.opcode not in (Opcode.LOAD, Opcode.STORE):
            # Other lanes use the result, which would be poison if the flags do not hold for an inactive lane 0.
            return self.frame.b.clone_without_flags(instruction, operands)
        made = self.frame.b.clone(instruction, operands)
        self._mark_memory(instruction, made)
        return made

    def _of_first_lane(self, value: Value) -> Value:
        """Return the value of lane 0; compute it if the value is divergent, as an operand of a uniform comparison."""
        if isinstance(value, Instruction) and self.shapes.is_divergent(value):
            return self.scalar(value)
        return self.slots.scalar(value)

    def _mark_memory(self, access: Instruction, made: Instruction) -> None:
        """Add alias metadata to a copied load or store: in workgroup memory, or not."""
        if access.opcode not in (Opcode.LOAD, Opcode.STORE):
            return
        address = self.graph.operands[access][access.opcode == Opcode.STORE]
        if self.slots.is_workgroup_memory(address):
            self.frame.mark_workgroup(made, is_inside=True)
        elif self.slots.is_other_memory(address):
            self.frame.mark_workgroup(made, is_inside=False)

    def lane(self, instruction: Instruction, lane: Value, piece: Piece) -> Value:
        """Append an instruction for one lane, in a loop over lanes; return its value."""
        special = self._special(instruction, lane)
        if special is not None:
            return special
        operands = self.graph.operands[instruction]
        made = self.frame.b.clone(instruction, [self.slots.lane(operand) for operand in operands])
        if instruction.opcode in (Opcode.LOAD, Opcode.STORE) and not piece.is_serial:
            self.frame.mark_parallel(made)
        self._mark_memory(instruction, made)
        return made

    def can_be_parallel(self, pieces: Iterable[Piece]) -> bool:
        """Return whether a loop over lanes may be marked as parallel.

        In such a loop the vectorizer of LLVM 15 to 22 joins strided accesses into groups. It moves the loads of a group
        to the first one and the stores to the last one, past accesses of the same lane to the same memory, because
        `canReorderMemAccessesForInterleavedGroups` (llvm/Analysis/VectorUtils.h) uses dependences that
        `LoopAccessInfo::analyzeLoop` does not compute for parallel loops.
        """
        stored: list[tuple[Value, bool]] = []
        for piece in pieces:
            if piece.is_serial:
                return False
            for i in piece.instructions:
                if i.opcode == Opcode.STORE:
                    value, address = self.graph.operands[i]
                    stored.append((address, self._is_strided(address, value.type)))
                elif i.opcode == Opcode.LOAD:
                    (address,) = self.graph.operands[i]
                    is_strided = self._is_strided(address, i.type)
                    if any(
                        (is_strided or other_is_strided) and self.slots.may_overlap(address, other)
                        for other, other_is_strided in stored
                    ):
                        return False
        return True

    def _is_strided(self, address: Value, type_: Type) -> bool:
        """Return whether there may be gaps between the accesses of the lanes."""
        stride = self.shapes[address].stride
        return stride is None or abs(stride) not in (0, self.frame.module.size_bytes(type_))

    def _special(self, instruction: Instruction, lane: Value) -> Value | None:
        """Append the replacement of an instruction that is not cloned; return None for another instruction."""
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


# The limit of pieces in all segments. Each is written up to four times: coherent and masked, for
# strips of rows and for other strips.
_MOST_WRITTEN = 1500
