"""Divergence analysis: which values are uniform, linear in the lane, or divergent in a strip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from mlir_offload.toolchain.llvmc.code import Opcode, Predicate, TypeKind
from mlir_offload.toolchain.llvmc.ir import Instruction, Type, Value
from mlir_offload.toolchain.llvmc.module import Module
from mlir_offload.translate.cpu.collapse.piece import (
    REGISTERS,
    SHARED_MEMORY,
    CannotCollapseError,
    Graph,
    Piece,
    condition_of,
)
from mlir_offload.translate.cpu.collapse.region import (
    Region,
    divergent_joins,
    region_of,
)


class Shape(Struct, frozen=True):
    """The shape of a value: how it differs between the lanes of a strip.

    The value in lane `l` is that of lane 0 plus `l * stride`, in bytes for a pointer. The value is uniform if the
    stride is 0, linear if it is another number, and divergent if there is none. If `is_aligned`, lane 0 has a
    multiple of the number of lanes. In an aligned divergent value, each lane has the same multiple plus a number
    that is less than the number of lanes.
    """

    stride: int | None
    is_aligned: bool = False

    @property
    def is_uniform(self) -> bool:
        """Return whether all lanes have the same value."""
        return self.stride == 0

    @property
    def is_divergent(self) -> bool:
        """Return whether the value is neither uniform nor linear."""
        return self.stride is None

    @property
    def is_in_block(self) -> bool:
        """Return whether all lanes are in one aligned block: `m` to `m + lanes - 1` for a multiple `m` of `lanes`."""
        return self.is_aligned and self.stride in (None, 0, 1)


UNIFORM = Shape(0)
DIVERGENT = Shape(None)
_INDEX = Shape(1, is_aligned=True)
_IN_BLOCK = Shape(None, is_aligned=True)
# All values of an aligned block are less than a multiple of its size, or none is. In a type with
# fewer bits, the sign could differ between the lanes.
_LEAST_BITS = 8
_BELOW = frozenset((Predicate.ULT, Predicate.UGE, Predicate.SLT, Predicate.SGE))
_ABOVE = frozenset((Predicate.UGT, Predicate.ULE, Predicate.SGT, Predicate.SLE))


_Rule = Callable[[Instruction, tuple[Value, ...], list[Shape]], Shape | None]


class Geometry(Struct, frozen=True):
    """How the threads of a block are divided into strips.

    A strip is `lanes` consecutive threads that one loop over lanes (work-item loop) executes. A row is the
    threads with equal y and z, in the order of x. If `is_row`, a strip is part of a row, and the length of rows is
    a multiple of `lanes`, or equal to it if `is_whole_row`. If also `is_any_width`, a strip is a row of at most
    `lanes` threads. If not `is_row`, strips divide the threads in linear order, and some threads of the last strip
    may not exist.
    """

    lanes: int
    is_row: bool
    is_whole_row: bool = False
    is_any_width: bool = False


def register_shape(register: str, geometry: Geometry) -> Shape:
    """Return the shape of a special register, named as in PTX."""
    if geometry.is_any_width and register in ("laneid", "warpid"):
        return DIVERGENT
    if register == "laneid":
        return _INDEX
    if register == "tid.x":
        return _INDEX if geometry.is_row else DIVERGENT
    if register.startswith("tid."):
        return UNIFORM if geometry.is_row else DIVERGENT
    if register.startswith("lanemask."):
        return DIVERGENT
    is_multiple = register == "ntid.x" and geometry.is_row and not geometry.is_any_width
    return Shape(0, is_aligned=is_multiple)


class Shapes:
    """The shapes of all values of a kernel, and the regions of its divergent branches."""

    def __init__(self, graph: Graph, module: Module, geometry: Geometry) -> None:
        """Classify the values."""
        self._graph = graph
        self._module = module
        self._geometry = geometry
        self._of: dict[Value, Shape] = {}
        self._forced: set[Piece] = set()
        self.branches: dict[Piece, Region] = {}
        self._rules: dict[int, _Rule] = {
            **dict.fromkeys((Opcode.ADD, Opcode.SUB, Opcode.OR), self._add),
            **dict.fromkeys((Opcode.MUL, Opcode.SHL), self._multiply),
            **dict.fromkeys((Opcode.SEXT, Opcode.ZEXT), self._widen),
            **dict.fromkeys((Opcode.AND, Opcode.LSHR, Opcode.UDIV, Opcode.UREM), self._bits),
            Opcode.TRUNC: self._narrow,
            Opcode.GEP: self._address,
            Opcode.XOR: self._exclusive,
            Opcode.ICMP: self._compare,
            Opcode.SELECT: self._select,
            Opcode.STORE: self._store,
        }
        while self._classify():
            pass

    def __getitem__(self, value: Value) -> Shape:
        """Return the shape of a value; arguments and constants are uniform."""
        if isinstance(value, Instruction):
            return self._of.get(value, DIVERGENT)
        number = value.number
        return Shape(0, is_aligned=number is not None and number % self._geometry.lanes == 0)

    def is_uniform(self, value: Value) -> bool:
        """Return whether a value is uniform."""
        return self[value].is_uniform

    def is_divergent(self, value: Value) -> bool:
        """Return whether a value is divergent."""
        return self[value].is_divergent

    def _classify(self) -> bool:
        """Compute the shapes; return whether further pieces have divergent phis."""
        self._of = {}
        changed = True
        while changed:
            changed = False
            for piece in self._graph.order:
                for value in (*piece.phis, *piece.instructions, *_only(piece.collective)):
                    found = self._next_shape(piece, value)
                    if found is not None and found != self._of.get(value):
                        self._of[value] = found
                        changed = True
        before = len(self._forced)
        self.branches = {}
        for piece in self._graph.order:
            if piece.condition is not None and not self.is_uniform(condition_of(piece)):
                region = self.branches[piece] = region_of(self._graph, piece)
                self._forced.update(divergent_joins(self._graph, piece, region))
        return len(self._forced) > before

    def _next_shape(self, piece: Piece, value: Instruction) -> Shape | None:
        if value.opcode == Opcode.PHI:
            found = self._phi(piece, value)
        elif value in (piece.collective, piece.serial):
            found = DIVERGENT
        else:
            found = self._transfer(piece, value)
        return found if found is None else _meet(self._of.get(value), found)

    def _known(self, value: Value) -> Shape | None:
        return self._of.get(value) if isinstance(value, Instruction) else self[value]

    def _phi(self, piece: Piece, phi: Instruction) -> Shape | None:
        if piece in self._forced:
            return DIVERGENT
        found: Shape | None = None
        for _, value in self._graph.incoming[phi]:
            shape = self._known(value)
            if shape is not None:
                found = _meet(found, shape)
        return found

    def _transfer(self, piece: Piece, value: Instruction) -> Shape | None:
        fixed = self._fixed(value)
        if fixed is not None:
            return fixed
        operands = self._graph.operands[value]
        known = [self._known(operand) for operand in operands]
        shapes = [shape for shape in known if shape is not None]
        if len(shapes) < len(known):
            return None
        if value.opcode == Opcode.LOAD:
            return self._load(piece, value, shapes[0])
        rule = self._rules.get(value.opcode)
        found = rule(value, operands, shapes) if rule else None
        if found is not None:
            return found
        return UNIFORM if all(shape.is_uniform for shape in shapes) else DIVERGENT

    def _fixed(self, value: Instruction) -> Shape | None:
        """Return the shape of an allocation, a special register or a workgroup memory pointer; None for others."""
        if value.opcode == Opcode.ALLOCA:
            return Shape(self.private_bytes(value))
        name = value.callee if value.opcode == Opcode.CALL else ""
        if name.startswith(REGISTERS):
            return register_shape(name.removeprefix(REGISTERS), self._geometry)
        return Shape(0, is_aligned=True) if name in SHARED_MEMORY else None

    def private_bytes(self, alloca: Instruction) -> int:
        """Return the distance in bytes between the copies of a private allocation in two consecutive lanes."""
        library = alloca.context.library
        type_ = alloca.context.type_of(library.call("GetAllocatedType", alloca.handle))
        count = self._graph.operands[alloca][0].number
        if count is None:
            msg = "an allocation of unknown size"
            raise CannotCollapseError(msg)
        align = max(alloca.alignment, 1)
        return -(-self._module.size_bytes(type_) * count // align) * align

    def _load(self, piece: Piece, load: Instruction, address: Shape) -> Shape:
        if not address.is_uniform or load.flag("Volatile") or load.is_atomic:
            return DIVERGENT
        for other in piece.instructions:
            if other is load:
                break
            if other.opcode == Opcode.STORE:
                return DIVERGENT
        return UNIFORM

    def _add(
        self, value: Instruction, _operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        is_or = value.opcode == Opcode.OR
        if is_or and not value.context.library.call("GetIsDisjoint", value.handle):
            return None
        left, right = shapes
        if left.stride is None or right.stride is None:
            return None
        sign = -1 if value.opcode == Opcode.SUB else 1
        return Shape(left.stride + sign * right.stride, left.is_aligned and right.is_aligned)

    def _multiply(
        self, value: Instruction, operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        left, right = shapes
        factor = operands[1].number
        if value.opcode == Opcode.SHL and factor is not None:
            factor = 1 << factor
            right = Shape(0, factor % self._geometry.lanes == 0)
        if left.is_uniform and right.is_uniform:
            is_product = value.opcode == Opcode.MUL or factor is not None
            return Shape(0, is_product and (left.is_aligned or right.is_aligned))
        if factor is None or left.stride is None:
            return None
        return Shape(left.stride * factor, left.is_aligned or right.is_aligned)

    def _widen(
        self, value: Instruction, operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        is_signed = value.opcode == Opcode.SEXT
        if shapes[0].is_uniform or self._widens(operands[0], is_signed=is_signed):
            return shapes[0]
        return None

    def _widens(self, value: Value, *, is_signed: bool) -> bool:
        """Return whether a value keeps its stride if it is extended: no lane wraps in the narrow type."""
        if self.is_uniform(value):
            return True
        if not isinstance(value, Instruction) or self.is_divergent(value):
            return False
        if value.opcode == Opcode.CALL:
            return True
        if value.opcode in (Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.SHL):
            operands = self._graph.operands[value]
            return value.flag("NSW" if is_signed else "NUW") and all(
                self._widens(operand, is_signed=is_signed) for operand in operands
            )
        if value.opcode == Opcode.OR:
            return all(
                self._widens(operand, is_signed=is_signed)
                for operand in self._graph.operands[value]
            )
        return value.opcode == Opcode.ZEXT

    def _narrow(
        self, _value: Instruction, _operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        return shapes[0]

    def _address(
        self, value: Instruction, operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        stride = shapes[0].stride
        if value.type.kind == TypeKind.VECTOR or stride is None:
            return None
        for shape, (index, size) in zip(shapes[1:], self.index_sizes(value, operands), strict=True):
            if size is None or shape.stride is None:
                return None
            if shape.stride and not self._is_address_index(index):
                return None
            stride += shape.stride * size
        return Shape(stride)

    def index_sizes(
        self, address: Instruction, operands: tuple[Value, ...]
    ) -> Iterator[tuple[Value, int | None]]:
        """Yield the indices of a getelementptr with the size of their elements in bytes, None if there is none."""
        library, context = address.context.library, address.context
        type_: Type | None = context.type_of(
            library.call("GetGEPSourceElementType", address.handle)
        )
        for place, index in enumerate(operands[1:]):
            type_ = self._member(type_, index) if place and type_ else type_
            yield index, self._module.size_bytes(type_) if type_ else None

    def _is_address_index(self, index: Value) -> bool:
        return index.type.bits >= 64 or self._widens(index, is_signed=True)  # noqa: PLR2004 (the width of a pointer)

    def _member(self, type_: Type, index: Value) -> Type | None:
        library, context = type_.context.library, type_.context
        if type_.kind == TypeKind.ARRAY:
            return context.type_of(library.call("GetElementType", type_.handle))
        if type_.kind == TypeKind.STRUCT and index.number is not None:
            return type_.members[index.number]
        return None

    def _bits(
        self, value: Instruction, operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        """Return the shape of a quotient, a remainder or a bit mask of an aligned value with the stride 1."""
        lanes, amount = self._geometry.lanes, operands[1].number
        if shapes[0].stride != 1 or not shapes[0].is_aligned or amount is None:
            return None
        if value.opcode == Opcode.AND and amount == lanes - 1:
            return _INDEX
        if value.opcode == Opcode.AND and amount % lanes == 0:
            return Shape(0, is_aligned=True)
        if value.opcode == Opcode.LSHR and 1 << amount == lanes:
            return UNIFORM
        if value.opcode == Opcode.UDIV and amount > 0 and amount % lanes == 0:
            return UNIFORM
        return _INDEX if value.opcode == Opcode.UREM and amount == lanes else None

    def is_lane(self, value: Instruction) -> bool:
        """Return whether a value is the number of the lane, computed as a remainder of an aligned value."""
        is_rest = value.opcode in (Opcode.AND, Opcode.UREM)
        return is_rest and self[value] == _INDEX

    def _exclusive(
        self, _value: Instruction, _operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        """Return the shape of the partner in a butterfly: the partners of an aligned block are an aligned block."""
        left, right = shapes
        if left.is_uniform and right.is_uniform:
            return None
        return _IN_BLOCK if left.is_in_block and right.is_uniform else None

    def _compare(
        self, value: Instruction, operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        """Return UNIFORM for a comparison with a multiple of the lanes: a whole aligned block is below it, or none."""
        left, right = shapes
        is_block = left.is_in_block and operands[0].type.bits >= _LEAST_BITS
        if not is_block or left.is_uniform or not self._has_first_lane(operands[0], value):
            return None
        if value.predicate in _BELOW and right.is_uniform and right.is_aligned:
            return UNIFORM
        number = operands[1].number
        is_last = number is not None and (number + 1) % self._geometry.lanes == 0
        return UNIFORM if value.predicate in _ABOVE and is_last else None

    def _has_first_lane(self, value: Value, user: Instruction) -> bool:
        """Return whether the value of lane 0 can be computed at the comparison that uses it."""
        if not self.is_divergent(value):
            return True
        return (
            isinstance(value, Instruction)
            and value.opcode in (Opcode.XOR, Opcode.TRUNC)
            and self._graph.home[value] is self._graph.home[user]
            and all(self._has_first_lane(o, user) for o in self._graph.operands[value])
        )

    def _store(
        self, _value: Instruction, _operands: tuple[Value, ...], _shapes: list[Shape]
    ) -> Shape | None:
        return DIVERGENT

    def _select(
        self, _value: Instruction, _operands: tuple[Value, ...], shapes: list[Shape]
    ) -> Shape | None:
        condition, then, other = shapes
        return _meet(then, other) if condition.is_uniform else None


def _meet(first: Shape | None, second: Shape) -> Shape:
    if first is None:
        return second
    if first.stride != second.stride:
        return DIVERGENT
    return Shape(first.stride, first.is_aligned and second.is_aligned)


def _only(value: Instruction | None) -> Iterable[Instruction]:
    return () if value is None else (value,)
