"""Create operations of the arith and scf dialects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir_offload.translate.mlir.operation import Region, Value
from mlir_offload.translate.mlir.rewriter import Rewriter

# arith::CmpIPredicate.
_PREDICATES = {"eq": 0, "ne": 1, "slt": 2, "ult": 6, "uge": 9}


def constant(rewriter: Rewriter, number: float | str, kind: str) -> Value:
    """Create a constant of a number type, or of a vector type (splat)."""
    return rewriter.value("arith.constant", (), kind, {"value": f"{number} : {kind}"})


def i32(rewriter: Rewriter, number: int) -> Value:
    """Create a constant of type i32."""
    return constant(rewriter, number, "i32")


def boolean(rewriter: Rewriter, *, is_true: bool) -> Value:
    """Create a constant of type i1."""
    return rewriter.value("arith.constant", (), "i1", {"value": str(is_true).lower()})


def binary(rewriter: Rewriter, operation: str, left: Value, right: Value) -> Value:
    """Create a binary operation on values of one type."""
    return rewriter.value(f"arith.{operation}", (left, right), left.type)


def compare(rewriter: Rewriter, predicate: str, left: Value, right: Value) -> Value:
    """Create an integer comparison."""
    properties = {"predicate": f"{_PREDICATES[predicate]} : i64"}
    return rewriter.value("arith.cmpi", (left, right), "i1", properties)


def convert(rewriter: Rewriter, operation: str, value: Value, kind: str) -> Value:
    """Create a conversion to a type."""
    return rewriter.value(f"arith.{operation}", (value,), kind)


def select(rewriter: Rewriter, condition: Value, chosen: Value, other: Value) -> Value:
    """Create a select."""
    return rewriter.value("arith.select", (condition, chosen, other), chosen.type)


def negated(rewriter: Rewriter, condition: Value) -> Value:
    """Create the negation of a condition."""
    return binary(rewriter, "xori", condition, boolean(rewriter, is_true=True))


def when(rewriter: Rewriter, condition: Value, body: Callable[[], object]) -> None:
    """Create an scf.if without results."""
    with rewriter.region() as region:
        body()
        rewriter.create("scf.yield")
    rewriter.create("scf.if", (condition,), (), None, (region, Region()))


def either(
    rewriter: Rewriter,
    condition: Value,
    ways: tuple[Callable[[], Sequence[Value]], Callable[[], Sequence[Value]]],
) -> tuple[Value, ...]:
    """Create an scf.if with results; `ways` create its two branches."""
    regions, kinds = [], []
    for way in ways:
        with rewriter.region() as region:
            values = way()
            rewriter.create("scf.yield", values)
        regions.append(region)
        kinds = [value.type for value in values]
    return rewriter.create("scf.if", (condition,), kinds, None, regions).results
