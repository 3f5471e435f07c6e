"""A rewriter of operations, similar to MLIR's PatternRewriter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from mlir_offload.translate.mlir.operation import (
    Block,
    CustomOperation,
    Operation,
    Region,
    Value,
)
from mlir_offload.translate.mlir.syntax import Attribute, Signature, render_dictionary

T = TypeVar("T")


class Rewriter:
    """Creates operations at an insertion point, and replaces operations that patterns match.

    New values get names with a prefix that no program uses. New operations get the location of the
    operation that is rewritten.
    """

    def __init__(self, prefix: str = "%mo_") -> None:
        """Take the prefix of the names of new values."""
        self.location = ""
        self._prefix = prefix
        self._count = 0
        self._point: list[Operation] = []
        self._renamed: dict[str, str] = {}

    def fresh_name(self) -> str:
        """Return an unused name."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    @property
    def has_created(self) -> bool:
        """Return whether the rewriter created a value."""
        return self._count > 0

    def insert(self, operation: Operation) -> Operation:
        """Insert an operation at the insertion point."""
        self._point.append(operation)
        return operation

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Create an operation at the insertion point."""
        signature = Signature(
            properties={key: Attribute(value) for key, value in (properties or {}).items()},
            operand_types=[one.type for one in operands],
            result_types=list(result_types),
            location=self.location,
        )
        result = self._result_text(len(result_types)) if result_types else ""
        names = ", ".join([one.name for one in operands])
        operation = Operation(name, result, names, regions=list(regions), _signature=signature)
        return self.insert(operation)

    def value(
        self,
        name: str,
        operands: Sequence[Value],
        kind: str,
        properties: Mapping[str, str] | None = None,
    ) -> Value:
        """Create an operation with one result, and return the result."""
        given = f" <{{{render_dictionary(properties)}}}>" if properties else ""
        types = ", ".join([one.type for one in operands])
        shown = f"({kind})" if kind.startswith("(") else kind
        head = f"{given} : ({types}) -> {shown} {self.location}".rstrip()
        names = ", ".join([one.name for one in operands])
        result = self.fresh_name()
        self._point.append(Operation(name, result, names, head))
        return Value(result, kind)

    def custom(self, text: str, kind: str = "") -> Value:
        """Create an operation from its custom form, without results and location; return its result."""
        result = self.fresh_name() if kind else ""
        self.insert(CustomOperation("", result, head=text, end=self.location))
        return Value(result, kind)

    @contextmanager
    def region(self, arguments: Sequence[Value] = ()) -> Iterator[Region]:
        """Create a region with one block, and make its end the insertion point in the `with` block."""
        block = Block.with_arguments(arguments) if arguments else Block()
        with self.insertion_point(block.operations):
            yield Region([block])

    @contextmanager
    def insertion_point(self, operations: list[Operation]) -> Iterator[None]:
        """Make the end of a list the insertion point in the `with` block."""
        before, self._point = self._point, operations
        yield
        self._point = before

    def replace(self, operation: Operation, values: Sequence[Value]) -> None:
        """Replace the results of an operation, which is removed, by other values."""
        for old, new in zip(operation.result_names, values, strict=True):
            self._renamed[old] = self._renamed.get(new.name, new.name)

    def rewrite(
        self, region: Region, find: Callable[[Operation], Callable[[Self, Operation], None] | None]
    ) -> None:
        """Apply to each operation of a region the pattern that `find` returns for it, inner operations first.

        A pattern creates the replacement of the operation. It may insert the operation itself again.
        """
        outside, self._renamed = self._renamed, {}
        for block in region.blocks:
            given = block.operations
            block.operations = []
            with self.insertion_point(block.operations):
                for operation in given:
                    self._rewrite_one(operation, find)
        region.rename(self._renamed)
        self._renamed = outside

    def rewrite_chosen(
        self, function: Operation, chosen: Mapping[int, T], change: Callable[[Operation, T], None]
    ) -> None:
        """Apply `change` to the operations whose `id` is a key of `chosen`, with the value as argument."""

        def pattern(_: Rewriter, operation: Operation) -> None:
            change(operation, chosen[id(operation)])

        for region in function.regions if chosen else ():
            self.rewrite(region, lambda one: pattern if id(one) in chosen else None)

    def enter(self, operation: Operation) -> None:
        """Hook that is called for each operation before it is rewritten."""

    def _rewrite_one(
        self,
        operation: Operation,
        find: Callable[[Operation], Callable[[Self, Operation], None] | None],
    ) -> None:
        self.enter(operation)
        for inner in operation.regions:
            self.rewrite(inner, find)
        pattern = find(operation)
        if pattern is None:
            self._point.append(operation)
        else:
            self.location = operation.location
            pattern(self, operation)

    def _result_text(self, count: int) -> str:
        name = self.fresh_name()
        return f"{name}:{count}" if count > 1 else name
