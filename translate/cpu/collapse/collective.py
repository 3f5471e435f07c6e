"""Subgroup operations of a strip: permutations, reductions and votes of vectors, or calls of the runtime."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate
from mlir_offload.toolchain.llvmc.ir import Instruction, Type, Value
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.place import SUBGROUP
from mlir_offload.translate.cpu.collapse.slot import Slots

# The enum values of offload/runtime/cpu_device.h.
_NUMBERS = {
    name: number
    for number, name in enumerate(
        (
            *("shfl.sync.idx", "shfl.sync.up", "shfl.sync.down", "shfl.sync.bfly"),
            *("vote.all", "vote.any", "vote.uni", "vote.ballot", "match.any", "match.all"),
            *("add", "umax", "umin", "max", "min", "and", "or", "xor", "fmax", "fmin"),
        )
    )
}
_LAST_LANE = SUBGROUP - 1
_SEGMENT_SHIFT = 8


def write_collective(frame: Frame, slots: Slots, call: Instruction, mask: Value | None) -> None:
    """Append a subgroup operation of the lanes in `mask`, a vector of i1; None for all lanes."""
    name = call.callee.removeprefix("mo.")
    if name.startswith("bar.warp"):
        return
    if name.startswith("shfl."):
        _Shuffle(frame, slots, call, mask).write()
    elif name.startswith("vote."):
        _write_vote(frame, slots, call, mask)
    elif name.startswith("redux.") and _can_reduce(slots, call, mask):
        _write_reduction(frame, slots, call)
    else:
        _write_general(frame, slots, call, mask)


def _operands(slots: Slots, call: Instruction) -> tuple[Value, ...]:
    """Return the operands after the thread context and the number of the call site."""
    return slots.operands(call)[2:]


class _Shuffle:
    """A shuffle. If the distance is constant, it is a permutation of a vector."""

    def __init__(self, frame: Frame, slots: Slots, call: Instruction, mask: Value | None) -> None:
        self._frame = frame
        self._slots = slots
        self._call = call
        self._mask = mask
        self._way = call.callee.split(".")[3]
        self._members, self._value, self._distance, self._limit = _operands(slots, call)

    def write(self) -> None:
        number = self._distance.number
        if number is not None and self._way != "idx":
            self._write_permutation(number % SUBGROUP)
        elif (
            self._way == "idx"
            and self._slots.is_uniform(self._distance)
            and self._limit.number == _LAST_LANE
            and self._mask is None
        ):
            self._write_broadcast()
        else:
            _write_general(self._frame, self._slots, self._call, self._mask)

    def _write_broadcast(self) -> None:
        frame, b = self._frame, self._frame.b
        lane = b.binary(Opcode.AND, self._slots.scalar(self._distance), frame.number(_LAST_LANE))
        lanes = self._slots.all_lanes(self._value)
        picked = b.element(lanes, lane)
        everywhere = frame.constants([1] * frame.lanes, frame.i1)
        self._store(b.splat(picked, frame.lanes), everywhere)

    def _write_permutation(self, distance: int) -> None:
        frame, b = self._frame, self._frame.b
        own = self._slots.all_lanes(self._value)
        sources = [self._source(lane, distance) for lane in range(SUBGROUP)]
        inside = [source if 0 <= source < SUBGROUP else n for n, source in enumerate(sources)]
        permutation = frame.constants(inside)
        moved = b.shuffle(own, own.type.poison, permutation)
        is_valid = self._validity(sources)
        taken = is_valid
        if self._mask is not None:
            source_runs = b.shuffle(self._mask, self._mask.type.poison, permutation)
            taken = b.binary(Opcode.AND, is_valid, source_runs)
        self._store(b.select(taken, moved, own), is_valid)

    def _source(self, lane: int, distance: int) -> int:
        if self._way == "bfly":
            return lane ^ distance
        return lane - distance if self._way == "up" else lane + distance

    def _validity(self, sources: Sequence[int]) -> Value:
        """Return a vector of i1: the lanes whose source is in the range of the limit (PTX ISA, shfl.sync)."""
        frame, b = self._frame, self._frame.b
        is_up = self._way == "up"
        limit = self._limit.number
        if limit is not None:
            found = [
                source >= last if is_up else source <= last
                for source, last in zip(sources, _last_lanes(limit), strict=True)
            ]
            return frame.constants([int(is_valid) for is_valid in found], frame.i1)
        limits = self._slots.all_lanes(self._limit)
        ones = frame.constants([_LAST_LANE] * SUBGROUP)
        shifted = b.binary(Opcode.LSHR, limits, frame.constants([_SEGMENT_SHIFT] * SUBGROUP))
        segment = b.binary(Opcode.AND, shifted, ones)
        clamp = b.binary(Opcode.AND, limits, ones)
        outside = b.binary(Opcode.AND, clamp, b.binary(Opcode.XOR, segment, ones))
        lanes = frame.constants(list(range(SUBGROUP)))
        last = b.binary(Opcode.OR, b.binary(Opcode.AND, lanes, segment), outside)
        order = Predicate.SGE if is_up else Predicate.SLE
        return b.compare(order, frame.constants(list(sources)), last)

    def _store(self, result: Value, is_valid: Value) -> None:
        frame, type_ = self._frame, self._value.type
        if not self._call.callee.endswith("p"):
            frame.put_all(result, self._slots.slot(self._call), type_)
            return
        value, predicate = self._slots.pair(self._call)
        frame.put_all(result, value, type_)
        frame.put_all(is_valid, predicate, frame.i1)


def _last_lanes(limit: int) -> list[int]:
    segment, clamp = limit >> _SEGMENT_SHIFT & _LAST_LANE, limit & _LAST_LANE
    return [lane & segment | clamp & ~segment for lane in range(SUBGROUP)]


def _write_vote(frame: Frame, slots: Slots, call: Instruction, mask: Value | None) -> None:
    members, value = _operands(slots, call)
    if not slots.is_uniform(members):
        _write_general(frame, slots, call, mask)
        return
    b = frame.b
    votes = frame.bits(slots.all_lanes(value))
    group = frame.number(-1) if mask is None else frame.bits(mask)
    if mask is not None:
        votes = b.binary(Opcode.AND, votes, group)
    none = frame.number(0)
    kind = call.callee.split(".")[2]
    if kind == "ballot":
        result = votes
    elif kind == "any":
        result = b.compare(Predicate.NE, votes, none)
    else:
        result = b.compare(Predicate.EQ, votes, group)
        if kind == "uni":
            result = b.binary(Opcode.OR, result, b.compare(Predicate.EQ, votes, none))
    slot = slots.slot(call)
    frame.put_all(b.splat(result, frame.lanes), slot, call.type)


_REDUCTIONS = {
    "add": "add",
    "umax": "umax",
    "umin": "umin",
    "max": "smax",
    "min": "smin",
    "and": "and",
    "or": "or",
    "xor": "xor",
}


def _can_reduce(slots: Slots, call: Instruction, mask: Value | None) -> bool:
    _, members = _operands(slots, call)
    operation = call.callee.rsplit(".", 1)[1]
    return mask is None and operation in _REDUCTIONS and slots.is_uniform(members)


def _write_reduction(frame: Frame, slots: Slots, call: Instruction) -> None:
    value, _ = _operands(slots, call)
    operation = _REDUCTIONS[call.callee.rsplit(".", 1)[1]]
    vector = slots.all_lanes(value)
    type_ = frame.context.function_type(frame.i32, [vector.type])
    name = f"llvm.vector.reduce.{operation}.v{frame.lanes}i32"
    result = frame.b.call(frame.module.declare(name, type_), [vector])
    frame.put_all(frame.b.splat(result, frame.lanes), slots.slot(call), frame.i32)


def _write_general(frame: Frame, slots: Slots, call: Instruction, mask: Value | None) -> None:
    """Append a call of the runtime that computes the results of all lanes, as it does for fibers."""
    members, value, first, second = _general_operands(frame, slots, call)
    b = frame.b
    names = ("members", "value", "first", "second", "result")
    types = (frame.i32, frame.i64, frame.i32, frame.i32, frame.i64)
    arrays = [frame.array(t, name) for t, name in zip(types, names, strict=True)]
    for number, vector in enumerate((members, value, first, second)):
        frame.put_all(vector, arrays[number], types[number])
    group = frame.number(-1) if mask is None else frame.bits(mask)
    pointer = frame.pointer
    type_ = frame.context.function_type(frame.context.void, [frame.i32, frame.i32, *[pointer] * 5])
    called = frame.module.declare("mo_cpu_collective", type_)
    b.call(called, [frame.number(_number(call.callee)), group, *arrays])
    _store_results(frame, slots, call, arrays[-1])


def _number(callee: str) -> int:
    parts = callee.split(".")
    if parts[1] == "redux":
        return _NUMBERS[parts[3]]
    if parts[1] == "shfl":
        return _NUMBERS[".".join(parts[1:4])]
    return _NUMBERS[".".join(parts[1:3])]


def _general_operands(
    frame: Frame, slots: Slots, call: Instruction
) -> tuple[Value, Value, Value, Value]:
    operands = _operands(slots, call)
    is_reduction = call.callee.startswith("mo.redux.")
    value, members = operands[:2] if is_reduction else operands[1::-1]
    none = frame.i32.vector(frame.lanes).null
    others = [slots.all_lanes(operand) for operand in operands[2:]] or [none, none]
    return (
        slots.all_lanes(members),
        _as_bits(frame, slots.all_lanes(value), value.type),
        others[0],
        others[1],
    )


def _as_bits(frame: Frame, vector: Value, type_: Type) -> Value:
    """Return a vector of values of up to 64 bits as a vector of i64."""
    wide = frame.i64.vector(frame.lanes)
    bits = type_.bits or SUBGROUP
    whole = frame.b.cast(Opcode.BITCAST, vector, frame.context.integer(bits).vector(frame.lanes))
    return frame.b.cast(Opcode.ZEXT, whole, wide)


def _store_results(frame: Frame, slots: Slots, call: Instruction, results: Value) -> None:
    """Store the results of the runtime: values, and predicates, which are in bit 32."""
    b, lanes = frame.b, frame.lanes
    whole = frame.get_all(frame.i64, results)

    def narrow(type_: Type) -> Value:
        bits = type_.bits or SUBGROUP
        cut = b.cast(Opcode.TRUNC, whole, frame.context.integer(bits).vector(lanes))
        return b.cast(Opcode.BITCAST, cut, type_.vector(lanes))

    members = call.type.members if str(call.type).startswith("{") else ()
    if not members:
        frame.put_all(narrow(call.type), slots.slot(call), call.type)
        return
    value, predicate = slots.pair(call)
    shift = frame.constants([SUBGROUP] * lanes, frame.i64)
    frame.put_all(narrow(members[0]), value, members[0])
    shifted = b.binary(Opcode.LSHR, whole, shift)
    frame.put_all(b.cast(Opcode.TRUNC, shifted, frame.i1.vector(lanes)), predicate, frame.i1)
