"""Legalize vectors of elements whose bits LLVM packs, where they are moved from or to memory that does not.

A memref of i1 has one byte per element, `vector<8xi1>` one byte for all: vector.load would take eight elements from
the bits of the first one. Such elements are moved as integers with the bytes that they have in memory. The cast
between memrefs disappears, because their lowered types are equal.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.host.launch import element_bytes
from mlir_offload.translate.legalize import vector
from mlir_offload.translate.legalize.arith import convert
from mlir_offload.translate.legalize.elements import element_of, with_element
from mlir_offload.translate.legalize.rewriter import DevicePattern, DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import (
    Shaped,
    float_width,
    integer_width,
    parse_shaped,
)

_BYTE = 8
# The position of the memref, and that of the value of the element type, if there is one: an operand that is stored,
# the elements for lanes that a mask disables, or the padding.
_LAST = -1
_POSITIONS: Mapping[str, tuple[int, int | None]] = {
    "affine.vector_load": (0, None),
    "affine.vector_store": (1, 0),
    "vector.load": (0, None),
    "vector.store": (1, 0),
    "vector.transfer_write": (1, 0),
    **{
        f"vector.{name}": (0, _LAST)
        for name in (
            "maskedload",
            "maskedstore",
            "gather",
            "scatter",
            "expandload",
            "compressstore",
        )
    },
}
_CAST = "vector.type_cast"
OPERATIONS = frozenset({*_POSITIONS, "vector.transfer_read", _CAST})
_OTHERS: Mapping[str, DevicePattern] = {"vector.load": vector.load, "vector.store": vector.store}


def move(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Move wider elements, if LLVM packs those of the vector."""
    place = _POSITIONS.get(operation.name, (0, None))[0]
    memref = parse_shaped(operation.operand_types[place], "memref")
    if memref is None or _stored(memref.element) == memref.element:
        _OTHERS.get(operation.name, DeviceRewriter.insert)(rewriter, operation)
    elif operation.name == _CAST:
        msg = f"vector.type_cast of elements of type {memref.element}, which vectors contain in another form"
        hint = "use vector.load or vector.store, which convert the elements"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))
    else:
        _move_wide(rewriter, operation, memref)


def _move_wide(rewriter: DeviceRewriter, operation: Operation, memref: Shaped) -> None:
    operands = list(operation.operands)
    place, given = _POSITIONS.get(operation.name, (0, 1 + len(memref.sizes)))
    stored = _stored(memref.element)
    sizes = "".join(f"{'?' if size is None else size}x" for size in memref.sizes)
    kind = f"memref<{', '.join((f'{sizes}{stored}', *memref.parameters))}>"
    operands[place] = rewriter.value("builtin.unrealized_conversion_cast", (operands[place],), kind)
    if given is not None:
        operands[given] = _widened(rewriter, operands[given], stored)
    wide = operation.copy_without_regions()
    wide.operands = operands
    if operation.result_types:
        wide.result_types[0] = with_element(operation.result_types[0], stored)
        wide.result_text = rewriter.fresh_name()
    _OTHERS.get(wide.name, DeviceRewriter.insert)(rewriter, wide)
    if operation.result_types:
        (result,) = wide.results
        rewriter.replace(operation, (_narrowed(rewriter, result, memref.element),))


def _widened(rewriter: DeviceRewriter, value: Value, stored: str) -> Value:
    element = element_of(value.type)
    if (bits := _integer(element)) != element:
        value = convert(rewriter, "bitcast", value, with_element(value.type, bits))
    return convert(rewriter, "extui", value, with_element(value.type, stored))


def _narrowed(rewriter: DeviceRewriter, value: Value, element: str) -> Value:
    bits = _integer(element)
    value = convert(rewriter, "trunci", value, with_element(value.type, bits))
    if bits != element:
        value = convert(rewriter, "bitcast", value, with_element(value.type, element))
    return value


def _integer(element: str) -> str:
    """Return the integer type with the bits of a number type."""
    return f"i{integer_width(element) or float_width(element)}"


def _stored(element: str) -> str:
    """Return the integer type with the bytes of an element in memory; the type itself if it has all their bits."""
    width = integer_width(element) or float_width(element)
    bits = _BYTE * element_bytes(element)
    return element if width in {0, bits} else f"i{bits}"
