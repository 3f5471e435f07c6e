"""Slots: the memory of values between pieces, and the values that represent them inside of a piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlir_offload.toolchain.llvmc.code import Opcode, TypeKind
from mlir_offload.toolchain.llvmc.ir import Instruction, Value
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.piece import (
    SHARED_MEMORY,
    CannotCollapseError,
    Graph,
)
from mlir_offload.translate.cpu.collapse.place import LARGEST_BLOCK, StripPlace
from mlir_offload.translate.cpu.collapse.shape import Shapes
from mlir_offload.translate.cpu.collapse.traffic import Traffic

# The memory of an address: True for workgroup memory, False for that of a kernel argument, an
# allocation, or None if it is unknown.
_Base = bool | Instruction | None


class Slots:
    """The slots of a kernel's values, and the new values that represent them in the current piece.

    A slot is the memory that keeps a value between pieces: the value of lane 0 for a uniform or linear value, an
    array over the lanes (PoCL: context array) for a divergent one.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (the values of a kernel, and their memory)
        self,
        frame: Frame,
        graph: Graph,
        shapes: Shapes,
        traffic: Traffic,
        strip: StripPlace,
        arguments: Mapping[Value, Value],
        row_memory: Callable[[Value], Value] | None = None,
    ) -> None:
        """Allocate no slots yet; `row_memory` returns the slot of a divergent value in a row."""
        self._frame = frame
        self._graph = graph
        self._shapes = shapes
        self._traffic = traffic
        self._strip = strip
        self._arguments = arguments
        self._row_memory = row_memory
        self._memory: dict[Value, Value] = {}
        self._incoming: dict[Value, Value] = {}
        self._pairs: dict[Value, tuple[Value, ...]] = {}
        self._scalars: dict[Value, Value] = {}
        self._lane: Value | None = None
        self._lanes: dict[Value, Value] = {}
        self._bases: dict[Value, set[_Base]] = {}

    def slot(self, value: Value) -> Value:
        """Return the slot of a value."""
        if self._row_memory and self._shapes.is_divergent(value):
            return self._row_memory(value)
        return self._place(self._memory, value)

    def incoming(self, phi: Value) -> Value:
        """Return the slot of the incoming value of a phi.

        In a row, it is the slot of the phi, because a thread loads all values of a stretch before it stores any.
        """
        if self._row_memory and self._shapes.is_divergent(phi):
            return self._row_memory(phi)
        return self._place(self._incoming, phi)

    def _place(self, places: dict[Value, Value], value: Value) -> Value:
        found = places.get(value)
        if found is None:
            if self._has_parts(value):
                msg = "a result of two parts that lives across a barrier"
                raise CannotCollapseError(msg)
            make = self._frame.array if self._shapes.is_divergent(value) else self._frame.variable
            found = places[value] = make(value.type, "slot")
        return found

    def is_item(self, value: Value) -> bool:
        """Return whether a value is the thread context."""
        return value is next(iter(self._arguments))

    def operands(self, instruction: Instruction) -> tuple[Value, ...]:
        """Return the operands of an instruction of the kernel, without the called function."""
        return self._graph.operands[instruction]

    def is_uniform(self, value: Value) -> bool:
        """Return whether a value is uniform."""
        return self._shapes.is_uniform(value)

    # Values of lane 0 ---------------------------------------------------------------------

    def begin(self, *, is_masked: bool = False) -> None:
        """Begin a piece: forget the values of lane 0 in the previous one. In masked code, lane 0 may be inactive."""
        self._scalars = {}
        self.is_masked = is_masked

    def known_scalar(self, value: Value) -> Value | None:
        """Return the value of lane 0 if it is known in the current piece; otherwise None."""
        return self._scalars.get(value)

    def scalar(self, value: Value) -> Value:
        """Return the value of lane 0."""
        if not isinstance(value, Instruction):
            return self._arguments.get(value, value)
        found = self._scalars.get(value)
        if found is None:
            found = self._frame.b.load(value.type, self.slot(value))
            if self._lane is None:
                self._scalars[value] = found
        return found

    def set_scalar(self, value: Value, made: Value) -> None:
        """Set the value of lane 0, and store it if it crosses pieces."""
        self._scalars[value] = made
        if value in self._traffic.crossing:
            self._frame.b.store(made, self.slot(value))

    def incoming_scalar(self, phi: Value) -> Value:
        """Load the incoming value of a uniform or linear phi."""
        return self._frame.b.load(phi.type, self.incoming(phi))

    def private(self, alloca: Instruction) -> Value:
        """Return the address of lane 0's copy of a private allocation."""
        frame = self._frame
        size = self._shapes.private_bytes(alloca)
        if any(self._graph.home[alloca] in body for body in self._graph.loops.values()):
            msg = "an allocation in a loop"
            raise CannotCollapseError(msg)
        count, align = size * LARGEST_BLOCK, alloca.alignment
        found = frame.block_memory(alloca, frame.i8, count, "private", align)
        distance = frame.b.binary(Opcode.MUL, self._strip.first, frame.number(size))
        return frame.b.offset(frame.i8, found, distance)

    # Lanes --------------------------------------------------------------------------------

    def begin_lane(self, lane: Value) -> None:
        """Begin the body of a loop over lanes."""
        self._lane = lane
        self._lanes = {}

    def end_lane(self) -> None:
        """End the body of a loop over lanes."""
        self._lane = None

    def lane(self, value: Value) -> Value:
        """Return the value of the current lane."""
        lane, found = self.current_lane, self._lanes.get(value)
        if found is None:
            if isinstance(value, Instruction) and self._has_parts(value):
                found = self._whole(value, lane)
            elif self._shapes.is_divergent(value):
                found = self._frame.get(value.type, self.slot(value), lane)
            else:
                found = self.from_first(value, self.scalar(value))
            self._lanes[value] = found
        return found

    @property
    def current_lane(self) -> Value:
        """Return the lane of the loop over lanes that is being written."""
        if self._lane is None:
            msg = "no lane outside of a loop over lanes"
            raise ValueError(msg)
        return self._lane

    def from_first(self, value: Value, base: Value) -> Value:
        """Return a uniform or linear value in the current lane; `base` is its value in lane 0."""
        frame, b = self._frame, self._frame.b
        stride, lane = self._shapes[value].stride or 0, self.current_lane
        if stride == 0:
            return base
        if value.type.kind == TypeKind.POINTER:
            distance = b.binary(Opcode.MUL, lane, frame.number(stride, frame.i64))
            # The address of an inactive lane 0 may be out of bounds.
            return b.offset(frame.i8, base, distance, is_inbounds=not self.is_masked)
        is_narrow = value.type.bits < frame.i64.bits
        own = b.cast(Opcode.TRUNC if is_narrow else Opcode.ZEXT, lane, value.type)
        if stride != 1:
            own = b.binary(Opcode.MUL, own, frame.number(stride, value.type))
        return b.binary(Opcode.ADD, base, own)

    def set_lane(self, value: Value, made: Value, *, is_kept: bool = False) -> None:
        """Set a value of the current lane, and store it if it crosses pieces; `is_kept` if its slot contains it."""
        self._lanes[value] = made
        if is_kept or value not in self._traffic.crossing:
            return
        if self._shapes.is_divergent(value):
            self._frame.put(made, self.slot(value), self.current_lane)
        else:
            self._frame.b.store(self.shared(value, made), self.slot(value))

    def shared(self, value: Value, made: Value) -> Value:
        """Return a uniform value that a thread computed, as the value of the row.

        Raises CannotCollapseError for a linear value, because thread 0 may not execute the instruction.
        """
        if not self._shapes.is_uniform(value):
            msg = "a linear value is needed behind the branch that computes it"
            raise CannotCollapseError(msg)
        return made

    def incoming_lane(self, phi: Value) -> Value:
        """Load the incoming value of a divergent phi in the current lane."""
        return self._frame.get(phi.type, self.incoming(phi), self.current_lane)

    def all_lanes(self, value: Value) -> Value:
        """Return the values of all lanes as a vector."""
        frame, b = self._frame, self._frame.b
        if self._shapes.is_divergent(value):
            return frame.get_all(value.type, self.slot(value))
        vector = b.splat(self.scalar(value), frame.lanes)
        stride = self._shapes[value].stride or 0
        if stride == 0:
            return vector
        steps = frame.constants([lane * stride for lane in range(frame.lanes)], value.type)
        return b.binary(Opcode.ADD, vector, steps)

    # Results in two parts -----------------------------------------------------------------

    def pair(self, value: Instruction) -> tuple[Value, ...]:
        """Return the arrays of the two parts of a result of a subgroup operation."""
        found = self._pairs.get(value)
        if found is None:
            found = tuple(self._frame.array(part, "part") for part in value.type.members)
            self._pairs[value] = found
        return found

    def pair_part(self, extract: Instruction) -> Value | None:
        """Return a part of such a result in the current lane; None for another aggregate."""
        (whole,) = self._graph.operands[extract]
        if not isinstance(whole, Instruction) or not self._has_parts(whole) or not self._lane:
            return None
        return self._frame.get(extract.type, self.pair(whole)[extract.first_index], self._lane)

    def _whole(self, value: Instruction, lane: Value) -> Value:
        made = value.type.poison
        for number, (part, memory) in enumerate(
            zip(value.type.members, self.pair(value), strict=True)
        ):
            made = self._frame.b.insert_value(made, self._frame.get(part, memory, lane), number)
        return made

    def _has_parts(self, value: Value) -> bool:
        return value.type.kind == TypeKind.STRUCT and self._graph.home[value].collective is value

    # Workgroup memory ---------------------------------------------------------------------

    def is_workgroup_memory(self, address: Value) -> bool:
        """Return whether an address is known to be in workgroup memory."""
        return self._bases_of(address) == {True}

    def is_other_memory(self, address: Value) -> bool:
        """Return whether an address is known to be in the memory of kernel arguments."""
        return self._bases_of(address) == {False}

    def may_overlap(self, first: Value, second: Value) -> bool:
        """Return whether two addresses may be in the same memory."""
        bases = self._bases_of(first), self._bases_of(second)
        return None in bases[0] | bases[1] or not bases[0].isdisjoint(bases[1])

    def _bases_of(self, address: Value) -> set[_Base]:
        """Return the memory in which an address may be."""
        found = self._bases.get(address)
        if found is None:
            found = self._bases[address] = set()
            seen, work = {address}, [address]
            while work:
                value = work.pop()
                sources = self._sources(value)
                if not sources:
                    found.add(self._base(value))
                work += [source for source in sources if source not in seen]
                seen.update(sources)
        return found

    def _sources(self, address: Value) -> list[Value]:
        """Return the addresses from which an address is computed; empty if it is not computed from another."""
        if not isinstance(address, Instruction):
            return []
        if address.opcode == Opcode.GEP:
            return [self._graph.operands[address][0]]
        if address.opcode == Opcode.PHI:
            return [value for _, value in self._graph.incoming[address]]
        is_select = address.opcode == Opcode.SELECT
        return list(self._graph.operands[address][1:]) if is_select else []

    def _base(self, address: Value) -> _Base:
        if not isinstance(address, Instruction):
            return False if address in self._arguments else None
        if address.opcode == Opcode.ALLOCA:
            return address
        is_call = address.opcode == Opcode.CALL
        return True if is_call and address.callee in SHARED_MEMORY else None
