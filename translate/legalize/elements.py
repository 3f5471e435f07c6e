"""Create operations on numbers, or on each element of a vector."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mlir_offload.translate.legalize.arith import binary, constant, convert, select
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.syntax import parse_shaped


def element_of(kind: str) -> str:
    """Return the element type of a vector, or the type of a scalar."""
    shaped = parse_shaped(kind, "vector")
    return shaped.element if shaped else kind


def with_element(kind: str, element: str) -> str:
    """Return the type with another element type."""
    return kind.replace(element_of(kind), element)


def number(rewriter: DeviceRewriter, value: float | str, kind: str) -> Value:
    """Create a constant with this value in each element."""
    return constant(rewriter, f"dense<{value}>" if kind.startswith("vector") else value, kind)


def converted(rewriter: DeviceRewriter, conversion: str, value: Value, element: str) -> Value:
    """Create a conversion to another element type."""
    return convert(rewriter, conversion, value, with_element(value.type, element))


def with_number(
    rewriter: DeviceRewriter, operation: str, value: Value, other: float | str
) -> Value:
    """Create an operation on each element and a constant."""
    return binary(rewriter, operation, value, number(rewriter, other, value.type))


def compared(
    rewriter: DeviceRewriter, predicate: int, value: Value, other: Value | float | str
) -> Value:
    """Create a comparison of integers or of floating-point numbers with a value or a constant."""
    element = element_of(value.type)
    name = "arith.cmpi" if element.startswith("i") else "arith.cmpf"
    if not isinstance(other, Value):
        other = number(rewriter, other, value.type)
    properties = {"predicate": f"{predicate} : i64"}
    return rewriter.value(name, (value, other), with_element(value.type, "i1"), properties)


def chosen(rewriter: DeviceRewriter, condition: Value, value: int, other: Value) -> Value:
    """Create a selection of a constant, or of the other value if the condition is false."""
    return select(rewriter, condition, number(rewriter, value, other.type), other)


def flattened(rewriter: DeviceRewriter, operation: Operation) -> list[Value]:
    """Return the operands, as vectors of one dimension if they are vectors."""
    return [
        value if flat == value.type else rewriter.value("vector.shape_cast", (value,), flat)
        for value in operation.operands
        for flat in (flat_type(value.type),)
    ]


def replace_flattened(
    rewriter: DeviceRewriter, operation: Operation, results: Sequence[Value]
) -> None:
    """Replace the results by values, which have the types of `_flattened`."""
    shaped = (
        value if kind == value.type else rewriter.value("vector.shape_cast", (value,), kind)
        for value, kind in zip(results, operation.result_types, strict=True)
    )
    rewriter.replace(operation, tuple(shaped))


def flat_type(kind: str) -> str:
    """Return the type of a vector with one dimension and the same elements; another type unchanged."""
    vector = parse_shaped(kind, "vector")
    if vector is None or len(vector.sizes) == 1:
        return kind
    return f"vector<{prod(size or 1 for size in vector.sizes)}x{vector.element}>"
