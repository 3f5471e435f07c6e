"""Legalize operations on vectors in registers that the passes crash on, and reject what LLVM computes wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.legalize.arith import binary
from mlir_offload.translate.legalize.elements import flat_type
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import Shaped, float_width, integer_width, parse_shaped

# ShapedType::kDynamic.
_DYNAMIC = -(1 << 63)
_POSITION = "static_position"
_BYTE = 8


def bitcast(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Raise SourceError for a bitcast between elements of which neither is a multiple of the other.

    Of i16 and i24, say. LLVM 19 and 22 take the elements of a constant for those of the result
    (ConstantFolding.cpp), and a number in all elements for an element of the result (InstCombine).
    """
    kinds = operation.operand_types[0], operation.result_types[0]
    before, after = (_bits(_vector(kind).element) for kind in kinds)
    if gcd(before, after) not in (0, before, after):
        msg = f"LLVM computes a vector.bitcast from {kinds[0]} to {kinds[1]} wrongly"
        hint = "use elements of which the size of one is a multiple of the size of the other"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))
    rewriter.insert(operation)


def type_cast(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Raise SourceError for a type cast of numbers to a vector whose elements are at other places in memory."""
    (given,), (kind,) = operation.operand_types, operation.result_types
    memref = parse_shaped(kind, "memref")
    vector = _vector(memref.element) if memref else Shaped((), kind)
    bits = _bits(vector.element)
    fault = ""
    if "vector<" in given:
        pass
    elif bits and vector.sizes and bits % _BYTE:
        fault = "the elements of the vector are packed in memory"
    elif bits and len(vector.sizes) > 1 and not _is_power((vector.sizes[-1] or 1) * bits):
        fault = "the rows of the vector have gaps in memory"
    if fault:
        msg = f"vector.type_cast to {kind} is not supported: {fault}"
        hint = "use vector.transfer_read and vector.transfer_write"
        raise SourceError(msg, hint=hint, location=rewriter.locations.of(operation))
    rewriter.insert(operation)


def extract(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Extract the elements one by one if the position in a vector of several dimensions is a variable."""
    source, *position = operation.operands
    if not position or len(_vector(source.type).sizes) == 1:
        rewriter.insert(operation)
        return
    (kind,) = operation.result_types
    flat = _flat(rewriter, source)
    first = _first(rewriter, operation, source, position)
    count = _count(_vector(kind).sizes)
    found = [_element(rewriter, flat, _sum(rewriter, first, place)) for place in range(count)]
    rewriter.replace(operation, (_joined(rewriter, found, kind),))


def insert(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Insert the elements one by one if the position in a vector of several dimensions is a variable."""
    source, target, *position = operation.operands
    shape = _vector(target.type)
    if not position or len(shape.sizes) == 1:
        rewriter.insert(operation)
        return
    flat, given = _flat(rewriter, target), _flat(rewriter, source)
    first = _first(rewriter, operation, target, position)
    for place in range(_count(_vector(source.type).sizes)):
        one = _element(rewriter, given, place) if given.type.startswith("vector<") else given
        at = _sum(rewriter, first, place)
        flat = rewriter.value(
            "vector.insert", (one, flat, at), flat.type, {_POSITION: f"array<i64: {_DYNAMIC}>"}
        )
    rewriter.replace(operation, (_shaped(rewriter, flat, target.type),))


def _first(
    rewriter: DeviceRewriter, operation: Operation, vector: Value, position: Sequence[Value]
) -> Value:
    """Return the number of the element at the position of an operation, in the flat vector."""
    sizes, variables = _vector(vector.type).sizes, iter(position)
    first = rewriter.index(0)
    for axis, number in enumerate(operation.attribute(_POSITION).integers):
        at = next(variables) if number == _DYNAMIC else rewriter.index(number)
        step = rewriter.index(_count(sizes[axis + 1 :]))
        first = binary(rewriter, "addi", first, binary(rewriter, "muli", at, step))
    return first


def _sum(rewriter: DeviceRewriter, first: Value, place: int) -> Value:
    return binary(rewriter, "addi", first, rewriter.index(place)) if place else first


def _element(rewriter: DeviceRewriter, flat: Value, place: Value | int) -> Value:
    operands, number = ((flat,), place) if isinstance(place, int) else ((flat, place), _DYNAMIC)
    properties = {_POSITION: f"array<i64: {number}>"}
    return rewriter.value("vector.extract", operands, _vector(flat.type).element, properties)


def _joined(rewriter: DeviceRewriter, values: Sequence[Value], kind: str) -> Value:
    """Create a vector from its elements. A scalar is its own element."""
    if not kind.startswith("vector<"):
        return values[0]
    flat = _type((len(values),), _vector(kind).element)
    return _shaped(rewriter, rewriter.value("vector.from_elements", values, flat), kind)


def _flat(rewriter: DeviceRewriter, value: Value) -> Value:
    return _shaped(rewriter, value, flat_type(value.type))


def _shaped(rewriter: DeviceRewriter, value: Value, kind: str) -> Value:
    return value if value.type == kind else rewriter.value("vector.shape_cast", (value,), kind)


def _vector(kind: str) -> Shaped:
    """Return the shape of a vector type; a scalar has no dimensions."""
    return parse_shaped(kind, "vector") or Shaped((), kind)


def _type(sizes: Sequence[int | None], element: str) -> str:
    return f"vector<{''.join(f'{size}x' for size in sizes)}{element}>"


def _count(sizes: Sequence[int | None]) -> int:
    return prod(size or 1 for size in sizes)


def _bits(element: str) -> int:
    return integer_width(element) or float_width(element)


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0
