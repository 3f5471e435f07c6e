"""Rewrite gpu.alloc, gpu.memcpy and gpu.memset of memrefs that gpu-to-llvm lowers wrongly or rejects.

gpu-to-llvm converts gpu.alloc only if the elements are contiguous. Memory with another layout is allocated as a
one-dimensional memref that covers all elements of the layout, and cast to that layout. MLIR computes the offset and
the strides with affine.apply of the layout map to corners of the index space.
gpu-to-llvm lowers gpu.memcpy to a contiguous copy that ignores the offset and the strides of the target, and
gpu.memset only for elements of 16 and 32 bits. Other transfers become calls of the runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_module import POINTER, is_async, segment
from mlir_offload.translate.host.launch import element_bytes
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import CustomOperation, Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import (
    MLIR,
    Attribute,
    Shaped,
    float_width,
    has_layout,
    integer_array,
    is_layout,
    parse_shaped,
    tokens,
)

_SEGMENTS = "operandSegmentSizes"
_TOKENS, _SIZES, _SYMBOLS = range(3)
_INDEX = "index"
_NOT_STRIDED = frozenset({"floordiv", "ceildiv", "mod"})
_COPY, _SET = "mgpuMemcpyMemRef", "mgpuMemsetMemRef"
_FIXED = {
    _COPY: f"{POINTER}, i64, {POINTER}, i64, i64, {POINTER}, i64",
    _SET: f"{POINTER}, i64, i64, i64, {POINTER}, i64",
}
"""Functions of the runtime and their fixed parameters. The variadic arguments are integers, per dimension."""
_TRANSFERS = frozenset({"gpu.memcpy", "gpu.memset"})
_STOCK = frozenset({"i16", "si16", "ui16", "i32", "si32", "ui32", "f16", "bf16", "f32"})
_WORD = "i64"


class _Allocation(Struct, frozen=True):
    """The allocation of a gpu.alloc: sizes of the dimensions, layout and its symbols, element type, memory space."""

    kind: str
    sizes: Sequence[Value | int]
    layout: Attribute
    symbols: Sequence[Value]
    element: str
    spaces: Sequence[str]

    @property
    def row(self) -> str:
        """Return the type of the one-dimensional memory."""
        return self._memref(("?",))

    @property
    def view(self) -> str:
        """Return the type with dynamic strides and a dynamic offset."""
        strides = ", ".join("?" * len(self.sizes))
        sizes = ("?" if isinstance(one, Value) else str(one) for one in self.sizes)
        return self._memref(sizes, f"strided<[{strides}], offset: ?>")

    def _memref(self, sizes: Iterable[str], *layout: str) -> str:
        return f"memref<{', '.join(('x'.join((*sizes, self.element)), *layout, *self.spaces))}>"


class AllocationRewriter(Rewriter):
    """Rewrites the allocations with a layout in the host code of one module."""

    def __init__(self, aliases: Mapping[str, str], locations: Locations) -> None:
        """Take the definitions of attribute aliases."""
        super().__init__("%mo_allocation_")
        self._aliases, self._locations = aliases, locations

    def rewrite_function(self, function: Operation) -> None:
        """Rewrite the allocations in an operation. Raises SourceError for a layout without strides."""
        shapes = {id(one): shape for one in function.walk_inside() if (shape := _shape(one))}
        self.rewrite_chosen(function, shapes, self._allocate)

    def _allocate(self, operation: Operation, shape: Shaped) -> None:
        allocation = self._read(operation, shape)
        offset, strides = self._offset_and_strides(allocation)
        sizes = [self._number(one) if isinstance(one, int) else one for one in allocation.sizes]
        old, waited = operation.copy_without_regions(), segment(operation, _TOKENS)
        operation.operands = (*waited, self._extent(offset, strides, sizes))
        operation.set_attribute(_SEGMENTS, integer_array("i32", (len(waited), 1, 0)))
        operation.result_types[0] = allocation.row
        operation.result_text = ", ".join(self.fresh_name() for _ in old.result_names)
        self.insert(operation)
        row, *token = operation.results
        self.replace(old, (self._view(allocation, row, offset, strides), *token))

    def _read(self, operation: Operation, shape: Shaped) -> _Allocation:
        layout = next(filter(is_layout, shape.parameters))
        spaces = [one for one in shape.parameters if one != layout]
        self._check(operation, Attribute(self._aliases.get(layout, layout)))
        given = iter(segment(operation, _SIZES))
        return _Allocation(
            operation.result_types[0],
            [next(given) if size is None else size for size in shape.sizes],
            Attribute(layout),
            segment(operation, _SYMBOLS),
            shape.element,
            spaces,
        )

    def _check(self, operation: Operation, layout: Attribute) -> None:
        if layout.name == "strided" or _has_strides(layout):
            return
        msg = f"gpu.alloc of a memref whose layout has no strides: {layout}"
        hint = (
            "use an affine map with one result, without floordiv, ceildiv and mod, or strided<...>"
        )
        raise SourceError(msg, hint=hint, location=self._locations.of(operation))

    def _offset_and_strides(self, allocation: _Allocation) -> tuple[Value, list[Value]]:
        """Return the offset of the first element, and the strides, in elements."""
        if allocation.layout.name == "strided":
            return self._strided(allocation)
        zero, one = self._number(0), self._number(1)
        rank = len(allocation.sizes)
        corners = [[zero] * rank]
        corners += [
            [one if axis == place else zero for axis in range(rank)] for place in range(rank)
        ]
        offset, *ends = (
            self.value(
                "affine.apply", (*corner, *allocation.symbols), _INDEX, {"map": allocation.layout}
            )
            for corner in corners
        )
        return offset, [self._arith("subi", end, offset) for end in ends]

    def _strided(self, allocation: _Allocation) -> tuple[Value, list[Value]]:
        """Return offset and strides of `strided<[?, 1], offset: ?>`. Its first symbol is the offset."""
        strides, *offset = allocation.layout.body_elements
        written = [offset[0].partition(": ")[2] if offset else "0", *strides.elements]
        symbols = iter(allocation.symbols)
        first, *others = (
            next(symbols) if one == "?" else self._number(int(one)) for one in written
        )
        return first, others

    def _extent(self, offset: Value, strides: Iterable[Value], sizes: Iterable[Value]) -> Value:
        """Return the number of elements that the layout spans, 0 if a dimension is empty."""
        zero, one = self._number(0), self._number(1)
        count = self._arith("addi", offset, one)
        is_empty = self.value("arith.constant", (), "i1", {"value": "false"})
        for stride, size in zip(strides, sizes, strict=True):
            steps = self._arith("subi", size, one)
            # The offset includes the elements that a negative stride reaches.
            forward = self._arith("maxsi", stride, zero)
            count = self._arith("addi", count, self._arith("muli", steps, forward))
            has_none = self.value("arith.cmpi", (size, zero), "i1", {"predicate": "0 : i64"})
            is_empty = self.value("arith.ori", (is_empty, has_none), "i1")
        return self.value("arith.select", (is_empty, zero, count), _INDEX)

    def _view(
        self, allocation: _Allocation, row: Value, offset: Value, strides: Iterable[Value]
    ) -> Value:
        sizes = ", ".join(
            one.name if isinstance(one, Value) else str(one) for one in allocation.sizes
        )
        steps = ", ".join(one.name for one in strides)
        # The custom form: static sizes are properties, dynamic sizes are operands.
        view = self.custom(
            f"memref.reinterpret_cast {row.name} to offset: [{offset.name}], sizes: [{sizes}], "
            f"strides: [{steps}] : {row.type} to {allocation.view}",
            allocation.view,
        )
        return self.value("memref.cast", (view,), allocation.kind)

    def _number(self, number: int) -> Value:
        return self.value("arith.constant", (), _INDEX, {"value": f"{number} : {_INDEX}"})

    def _arith(self, name: str, left: Value, right: Value) -> Value:
        return self.value(f"arith.{name}", (left, right), _INDEX)


def _has_strides(layout: Attribute) -> bool:
    results = MLIR.split_list(MLIR.inside(layout.body.partition("-> ")[2], 0))
    return len(results) == 1 and _NOT_STRIDED.isdisjoint(tokens(results[0]))


def _shape(operation: Operation) -> Shaped | None:
    """Return the memref that a gpu.alloc with a layout allocates, None for other operations."""
    if operation.name != "gpu.alloc" or not has_layout(operation.result_types[0]):
        return None
    return parse_shaped(operation.result_types[0], "memref")


class _MemRef(Struct, frozen=True):
    """A memref: its value, its element type and rank, and the type of its base."""

    value: Value
    element: str
    rank: int
    base: str
    is_identity: bool


class _Description(Struct, frozen=True):
    """A memref descriptor, as 64-bit values."""

    pointer: Value
    offset: Value
    sizes: Sequence[Value]
    strides: Sequence[Value]


class TransferRewriter(Rewriter):
    """Rewrites the functions of one host module, with unique names for new values."""

    def __init__(self) -> None:
        """Create a rewriter for a module."""
        super().__init__("%mo_transfer_")
        self._called: set[str] = set()

    def rewrite_function(self, function: Operation) -> None:
        """Rewrite the transfers of a function. Each has exactly one token."""
        if any(one.name in _TRANSFERS for one in function.walk_inside()):
            for region in function.regions:
                self.rewrite(
                    region, lambda one: TransferRewriter._transfer if _is_transfer(one) else None
                )

    def declarations(self, declared: Collection[str]) -> list[Operation]:
        """Return declarations of the functions that were called, except those in `declared`."""
        names = sorted(self._called.difference(declared))
        heads = (f"llvm.func @{name}({_FIXED[name]}, ...)" for name in names)
        return [CustomOperation("", head=head) for head in heads]

    def _transfer(self, operation: Operation) -> None:
        token, first, second = operation.operands
        target = _parse_memref(first)
        if operation.name == "gpu.memcpy":
            source = _parse_memref(second)
            if target.is_identity and source.is_identity:
                self.insert(operation)
                return
            self._copy(target, source, token)
        else:
            if target.is_identity and target.element in _STOCK:
                self.insert(operation)
                return
            self._set(target, second, token)
        self.replace(operation, (token,))

    def _copy(self, target: _MemRef, source: _MemRef, token: Value) -> None:
        to, from_ = self._describe(target), self._describe(source)
        sizes = zip(to.sizes, to.strides, from_.strides, strict=True)
        dimensions = [number for dimension in sizes for number in dimension]
        fixed = (to.pointer, to.offset, from_.pointer, from_.offset)
        self._call(_COPY, fixed, target, token, dimensions)

    def _set(self, target: _MemRef, value: Value, token: Value) -> None:
        to = self._describe(target)
        dimensions = [n for pair in zip(to.sizes, to.strides, strict=True) for n in pair]
        fixed = (to.pointer, to.offset, self._bits(value))
        self._call(_SET, fixed, target, token, dimensions)

    def _call(
        self,
        function: str,
        fixed: Sequence[Value],
        target: _MemRef,
        token: Value,
        dimensions: Sequence[Value],
    ) -> None:
        stream = self._cast("builtin.unrealized_conversion_cast", token, POINTER)
        size, rank = self._number(element_bytes(target.element)), self._number(target.rank)
        arguments = ", ".join(one.name for one in (*fixed, size, stream, rank, *dimensions))
        numbers = f", {_WORD}" * len(dimensions)
        kind = f"void ({_FIXED[function].replace(POINTER, 'ptr')}, ...)"
        signature = f"({_FIXED[function]}{numbers}) -> ()"
        # The custom form: the properties of llvm.call differ between releases.
        self.custom(f"llvm.call @{function}({arguments}) vararg(!llvm.func<{kind}>) : {signature}")
        self._called.add(function)

    def _describe(self, memref: _MemRef) -> _Description:
        rank = memref.rank
        types = (memref.base, *["index"] * (1 + 2 * rank))
        described = self.create("memref.extract_strided_metadata", (memref.value,), types)
        address = self._cast("memref.extract_aligned_pointer_as_index", memref.value, "index")
        pointer = self._cast("llvm.inttoptr", self._to_word(address), POINTER)
        offset, *numbers = map(self._to_word, described.results[1:])
        return _Description(pointer, offset, numbers[:rank], numbers[rank:])

    def _bits(self, value: Value) -> Value:
        """Return the bits of a value as a 64-bit integer."""
        kind = Attribute(value.type)
        if kind.name == "complex":
            real, imaginary = (
                self._bits(self._cast(f"complex.{part}", value, kind.body)) for part in ("re", "im")
            )
            shift = self._number(element_bytes(kind.body) * 8)
            high = self.value("arith.shli", (imaginary, shift), _WORD)
            return self.value("arith.ori", (real, high), _WORD)
        if kind == "index":
            return self._to_word(value)
        if width := float_width(kind):
            value = self._cast("arith.bitcast", value, f"i{width}")
        return value if value.type == _WORD else self._cast("arith.extui", value, _WORD)

    def _to_word(self, value: Value) -> Value:
        return self._cast("arith.index_cast", value, _WORD)

    def _number(self, number: int) -> Value:
        properties = {"value": f"{number} : {_WORD}"}
        return self.value("llvm.mlir.constant", (), _WORD, properties)

    def _cast(self, operation: str, value: Value, kind: str) -> Value:
        return self.value(operation, (value,), kind)


def _is_transfer(operation: Operation) -> bool:
    return operation.name in _TRANSFERS and is_async(operation)


def _parse_memref(value: Value) -> _MemRef:
    shaped = parse_shaped(value.type, "memref")
    element, parameters = (shaped.element, shaped.parameters) if shaped else ("", ())
    layouts = [one for one in parameters if is_layout(one)]
    spaces = [one for one in parameters if one not in layouts]
    base = f"memref<{', '.join((element, *spaces))}>"
    rank = len(shaped.sizes) if shaped else 0
    return _MemRef(value, element, rank, base, is_identity=not layouts)
