"""gpu.alloc of memrefs with a layout, which gpu-to-llvm converts only if their elements are contiguous.

The memory is allocated as one row of elements, as many as the layout reaches, and viewed in that layout.
MLIR itself computes the offset and the strides: affine.apply of the layout map to corners of the index space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.gpu_operation import segment
from mlir_offload.translate.mlir.module import Locations
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import (
    MLIR,
    Attribute,
    Shaped,
    integer_array,
    is_layout,
    parse_shaped,
    tokens,
)

_SEGMENTS = "operandSegmentSizes"
_TOKENS, _SIZES, _SYMBOLS = range(3)
_INDEX = "index"
_NOT_STRIDED = frozenset({"floordiv", "ceildiv", "mod"})


class _Allocation(Struct, frozen=True):
    """What a gpu.alloc allocates: sizes of the dimensions, the layout and its symbols, and a row of such elements."""

    kind: str
    sizes: Sequence[Value | int]
    layout: Attribute
    symbols: Sequence[Value]
    element: str
    spaces: Sequence[str]

    @property
    def row(self) -> str:
        """Return the type of the memory."""
        return self._memref(("?",))

    @property
    def view(self) -> str:
        """Return the type with strides and an offset that are computed at run time."""
        strides = ", ".join("?" * len(self.sizes))
        sizes = ("?" if isinstance(one, Value) else str(one) for one in self.sizes)
        return self._memref(sizes, f"strided<[{strides}], offset: ?>")

    def _memref(self, sizes: Iterable[str], *layout: str) -> str:
        return f"memref<{', '.join(('x'.join((*sizes, self.element)), *layout, *self.spaces))}>"


class AllocationRewriter(Rewriter):
    """Rewrites the allocations with a layout in the host code of one module."""

    def __init__(self, aliases: Mapping[str, str], locations: Locations) -> None:
        """Take what aliases of attributes represent."""
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
        """Return the offset of the first element, and the distances of elements in each dimension."""
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
        """Return what `strided<[?, 1], offset: ?>` has; its first symbol is the offset."""
        strides, *offset = allocation.layout.body_elements
        written = [offset[0].partition(": ")[2] if offset else "0", *strides.elements]
        symbols = iter(allocation.symbols)
        first, *others = (
            next(symbols) if one == "?" else self._number(int(one)) for one in written
        )
        return first, others

    def _extent(self, offset: Value, strides: Iterable[Value], sizes: Iterable[Value]) -> Value:
        """Return how many elements the layout reaches: none if a dimension is empty."""
        zero, one = self._number(0), self._number(1)
        count = self._arith("addi", offset, one)
        is_empty = self.value("arith.constant", (), "i1", {"value": "false"})
        for stride, size in zip(strides, sizes, strict=True):
            steps = self._arith("subi", size, one)
            # A negative stride reaches back, to elements that the offset has made room for.
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
        # The custom form: sizes that are known are properties, the others operands.
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
    """Return what an operation allocates if that has a layout."""
    if operation.name != "gpu.alloc":
        return None
    shape = parse_shaped(operation.result_types[0], "memref")
    return shape if shape is not None and any(map(is_layout, shape.parameters)) else None
