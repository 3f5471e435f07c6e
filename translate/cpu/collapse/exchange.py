"""Exchanges: loads and stores in which the lanes of a strip permute adjacent elements, as in `a[thread ^ distance]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from msgspec import Struct

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate, TypeKind
from mlir_offload.toolchain.llvmc.ir import Instruction, Type, Value
from mlir_offload.toolchain.llvmc.module import Module
from mlir_offload.translate.cpu.collapse.frame import Frame
from mlir_offload.translate.cpu.collapse.piece import Graph, Piece
from mlir_offload.translate.cpu.collapse.shape import Shapes

# x86 has a permutation by a variable of vectors of 8 words from AVX2 on.
_WORD_BYTES, _WORDS = 4, 8
_CHUNK_BYTES = _WORD_BYTES * _WORDS
_FLOATS = (2, 3)
# The numbers of an aligned block have one sign.
_LEAST_BITS = 8
_POINTER_BITS = 64
# Each makes up to two pieces more.
_MOST_PIECES = 200


class Exchange(Struct, frozen=True, eq=False):
    """A load or store of adjacent elements, of which each lane accesses another one.

    The address is proportional to the number of the thread, exclusive or the uniform `distances`. That of lane 0 is a
    multiple of the lanes, so that lane `l` accesses element `l ^ distance` of an aligned block of as many elements.
    """

    access: Instruction
    address: Value
    distances: tuple[Value, ...]
    type: Type


class _Proportion(Struct, frozen=True):
    """A value is proportional to an index; the factor is in bytes for a pointer."""

    index: Instruction
    factor: int


class Exchanges:
    """The exchanges of a kernel in strips of a geometry."""

    def __init__(self, graph: Graph, shapes: Shapes, module: Module) -> None:
        """Keep what the search needs."""
        self._graph = graph
        self._shapes = shapes
        self._module = module

    def isolate(self) -> None:
        """Put each exchange into a piece of its own."""
        found = self.found
        if found and len(self._graph.pieces) + 2 * len(found) <= _MOST_PIECES:
            self._graph.isolate(found)

    @property
    def found(self) -> list[Instruction]:
        """Return the exchanges of the kernel, in order."""
        return [
            instruction
            for piece in self._graph.order
            for instruction in piece.instructions
            if not piece.is_serial and self.of(instruction) is not None
        ]

    def alone(self, piece: Piece) -> Exchange | None:
        """Return the exchange that is the only instruction of a piece; None if there is none."""
        is_one = len(piece.instructions) == 1 and not piece.is_serial and not piece.phis
        return self.of(piece.instructions[0]) if is_one else None

    def of(self, access: Instruction) -> Exchange | None:
        """Return a load or store as an exchange; None for another instruction."""
        if access.opcode not in (Opcode.LOAD, Opcode.STORE):
            return None
        if access.flag("Volatile") or access.is_atomic:
            return None
        operands = self._graph.operands[access]
        address, type_ = operands[-1], access.type if len(operands) == 1 else operands[0].type
        if type_.kind not in (TypeKind.INTEGER, *_FLOATS):
            return None
        size, found = self._module.size_bytes(type_), self._proportion(address)
        is_whole = not type_.bits or type_.bits == 8 * size
        if found is None or found.factor != size or size not in _SIZES or not is_whole:
            return None
        return Exchange(access, address, tuple(self._distances(found.index)), type_)

    def needed(self, exchange: Exchange) -> Iterator[Value]:
        """Yield the values from which an exchange is computed: those of lane 0, and the value that is stored."""
        yield from self._graph.operands[exchange.access][:-1]
        work = [exchange.address]
        while work:
            value = work.pop()
            if isinstance(value, Instruction) and self._shapes.is_divergent(value):
                work += self._graph.operands[value]
            else:
                yield value

    def _is_index(self, value: Value) -> bool:
        if not isinstance(value, Instruction) or value.opcode != Opcode.XOR:
            return False
        if value.type.bits < _LEAST_BITS:
            return False
        left, right = self._graph.operands[value]
        return any(
            self._shapes.is_uniform(distance) and (self._is_thread(own) or self._is_index(own))
            for own, distance in ((left, right), (right, left))
        )

    def _distances(self, index: Value) -> Iterator[Value]:
        if isinstance(index, Instruction) and self._is_index(index):
            for operand in self._graph.operands[index]:
                yield from self._distances(operand)
        elif self._shapes.is_uniform(index):
            yield index

    def _is_thread(self, value: Value) -> bool:
        shape = self._shapes[value]
        return shape.stride == 1 and shape.is_aligned

    def _proportion(self, value: Value) -> _Proportion | None:
        if not isinstance(value, Instruction) or not self._shapes.is_divergent(value):
            return None
        operands = self._graph.operands.get(value, ())
        if self._is_index(value):
            return _Proportion(value, 1)
        if value.opcode in (Opcode.SEXT, Opcode.ZEXT, Opcode.TRUNC):
            (whole,) = operands
            if isinstance(whole, Instruction) and self._is_index(whole):
                return _Proportion(whole, 1) if value.type.bits >= _LEAST_BITS else None
            return None
        if value.opcode == Opcode.GEP:
            return self._address(value, operands)
        # A narrower sum could wrap around in some lanes.
        return self._sum(value, operands) if value.type.bits >= _POINTER_BITS else None

    def _sum(self, value: Instruction, operands: tuple[Value, ...]) -> _Proportion | None:
        if value.opcode not in (Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.SHL):
            return None
        left, right = operands
        if value.opcode == Opcode.ADD and self._shapes.is_uniform(left):
            left, right = right, left
        found = self._proportion(left)
        if found is None or not self._shapes.is_uniform(right):
            return None
        if value.opcode in (Opcode.ADD, Opcode.SUB):
            return found
        number = right.number
        if number is None:
            return None
        factor = 1 << number if value.opcode == Opcode.SHL else number
        return _Proportion(found.index, found.factor * factor)

    def _address(self, value: Instruction, operands: tuple[Value, ...]) -> _Proportion | None:
        others = [operand for operand in operands if not self._shapes.is_uniform(operand)]
        found = self._proportion(others[0]) if len(others) == 1 else None
        if found is None or others[0] is operands[0]:
            return found
        sizes = dict(self._shapes.index_sizes(value, operands))
        size = sizes[others[0]]
        return _Proportion(found.index, found.factor * size) if size else None


_SIZES = (_WORD_BYTES, 2 * _WORD_BYTES)


class ExchangeCode:
    """The code of an exchange: loads or stores of 32 bytes, and permutations of them."""

    def __init__(
        self, frame: Frame, exchange: Exchange, address: Value, distances: Sequence[Value]
    ) -> None:
        """Append the computation of the permutation; `address` is that of lane 0."""
        self._frame = frame
        self._type = exchange.type
        self._address = address
        self._size = frame.module.size_bytes(exchange.type)
        self._lanes = _CHUNK_BYTES // self._size
        b = frame.b
        distance = reduce(lambda one, two: b.binary(Opcode.XOR, one, two), distances)
        is_narrow = distance.type.bits < _POINTER_BITS
        wide = b.cast(Opcode.ZEXT if is_narrow else Opcode.TRUNC, distance, frame.i64)
        self._first = b.binary(Opcode.AND, wide, frame.number(frame.lanes - 1, frame.i64))
        words = b.cast(Opcode.TRUNC, self._first, frame.i32)
        words = b.binary(Opcode.MUL, words, frame.number(self._size // _WORD_BYTES))
        words = b.binary(Opcode.AND, words, frame.number(_WORDS - 1))
        numbers = frame.constants(list(range(_WORDS)))
        self._order = b.binary(Opcode.XOR, b.splat(words, _WORDS), numbers)
        type_ = frame.context.function_type(frame.context.void, [frame.pointer] * 3)
        self._permute = frame.module.declare("mo_cpu_permute", type_)

    def load(self, access: Instruction, slot: Value, mask: Value | None) -> Iterator[Instruction]:
        """Append the loads of the lanes in `mask`, None for all; yield each."""
        frame, b = self._frame, self._frame.b
        whole = frame.i32.vector(_WORDS)
        for begin in range(0, frame.lanes, self._lanes):
            place = self._place(begin)
            if mask is None:
                loaded = b.load(whole, place, align=access.alignment)
            else:
                loaded = frame.masked_load(whole, place, self._moved_mask(mask, begin))
            yield loaded
            made = b.cast(Opcode.BITCAST, self._moved(loaded), self._type.vector(self._lanes))
            number = frame.number(begin, frame.i64)
            b.store(made, frame.element(self._type, slot, number), align=1)

    def store(
        self, access: Instruction, values: Value, mask: Value | None
    ) -> Iterator[Instruction]:
        """Append the stores of the lanes in `mask`, None for all; yield each."""
        frame, b = self._frame, self._frame.b
        for begin in range(0, frame.lanes, self._lanes):
            own = b.shuffle(
                values,
                values.type.poison,
                frame.constants(list(range(begin, begin + self._lanes))),
            )
            made = self._moved(b.cast(Opcode.BITCAST, own, frame.i32.vector(_WORDS)))
            place = self._place(begin)
            if mask is None:
                yield b.store(made, place, align=access.alignment)
            else:
                yield frame.masked_store(made, place, self._moved_mask(mask, begin))

    def _place(self, begin: int) -> Value:
        """Return the address of the first element that the lanes from `begin` on access."""
        frame, b = self._frame, self._frame.b
        first = b.binary(Opcode.XOR, self._first, frame.number(begin, frame.i64))
        first = b.binary(Opcode.AND, first, frame.number(-self._lanes, frame.i64))
        distance = b.binary(Opcode.SUB, first, self._first)
        distance = b.binary(Opcode.MUL, distance, frame.number(self._size, frame.i64))
        return b.offset(frame.i8, self._address, distance, is_inbounds=False)

    def _moved(self, words: Value) -> Value:
        """Return the permuted words of a chunk, by an instruction that LLVM IR does not have."""
        frame, b = self._frame, self._frame.b
        given, order, made = (
            frame.variable(words.type, name) for name in ("words", "order", "moved")
        )
        b.store(words, given)
        b.store(self._order, order)
        b.call(self._permute, [made, given, order])
        return b.load(words.type, made)

    def _moved_mask(self, mask: Value, begin: int) -> Value:
        frame, b = self._frame, self._frame.b
        words = [begin + n * _WORD_BYTES // self._size for n in range(_WORDS)]
        own = b.shuffle(mask, mask.type.poison, frame.constants(words))
        moved = self._moved(b.cast(Opcode.SEXT, own, frame.i32.vector(_WORDS)))
        return b.compare(Predicate.NE, moved, moved.type.null)
