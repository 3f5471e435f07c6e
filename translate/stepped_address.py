"""Step one pointer per array for the element addresses in loops whose step is known only at run time.

If an iteration contains several steps, loop strength reduction otherwise steps each address separately. Its cost
model assigns no cost to pointers that the program already steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce

from msgspec import Struct

from mlir_offload.translate.mlir.operation import Block, Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.narrow_address import (
    ADDRESS,
    FLAGS,
    NO_FLAGS,
    POINTERS,
    innermost_loops,
    is_alone,
)

_BRANCH, _CONSTANT, _SUM = "llvm.br", "llvm.mlir.constant", "llvm.add"
_WIDE = "i64"
_Terms = Counter[str]
_Family = Sequence[tuple[Operation, _Terms]]


class _Loop(Struct, frozen=True):
    """A loop with one entry branch and one back edge (`latch`).

    `values` maps each value that the loop defines to its operation, or to None for a block argument. `strides`
    maps arguments of the header to the loop-invariant value that each iteration adds.
    """

    head: Block
    entry: Operation
    latch: Operation
    values: Mapping[str, Operation | None]
    strides: Mapping[str, str]

    def first(self, name: str) -> str:
        """Return the initial value of an argument of the header."""
        names = [one.name for one in self.head.arguments]
        return self.entry.operand_names[names.index(name)]


class _Sum(Struct, frozen=True):
    """A pointer, and the indices to add to it one by one. `pattern` is an address with the same element type."""

    pattern: Operation
    pointer: Value
    terms: Sequence[str]


def step_addresses(functions: Iterable[Operation]) -> None:
    """Step a pointer for addresses in a loop whose distance is known only at run time.

    The addresses do not change: 64-bit pointers and indices are added modulo 2**64, in any order.
    """
    rewriter = Rewriter("%mo_stepped_")
    for function in functions:
        sums: dict[int, list[_Sum]] = {}
        for loop, family in _families(function):
            for operation, made in _stepped(rewriter, loop, family):
                sums.setdefault(id(operation), []).append(made)
        rewriter.rewrite_chosen(function, sums, partial(_insert, rewriter))


def _families(function: Operation) -> Iterator[tuple[_Loop, _Family]]:
    """Yield each group of addresses to compute from one stepped pointer, with its loop."""
    blocks = [block for region in function.regions for block in region.blocks]
    loops = [loop for numbers in innermost_loops(blocks) for loop in _read(blocks, numbers)]
    if loops:
        inside = function.walk_inside()
        constants = {name for one in inside if one.name == _CONSTANT for name in one.result_names}
        for loop in loops:
            for family in _addresses(loop):
                common = _common(family)
                if not all(set(terms - common) <= constants for _, terms in family):
                    yield loop, family


def _read(blocks: Sequence[Block], numbers: range) -> Iterator[_Loop]:
    """Yield the loop that consists of the numbered blocks.

    Yields nothing if the loop has several entries or back edges, or does not step a value by a loop-invariant one.
    """
    body, head = blocks[numbers.start : numbers.stop], blocks[numbers.start]
    labels = [_label(block.label) for block in body]
    ends = [block.operations[-1] for block in blocks if block.operations]
    inner = {id(block.operations[-1]) for block in body}
    latch, entry = (
        [
            one
            for one in ends
            if (id(one) in inner) == is_inner and labels[0] in one.signature.successors
        ]
        for is_inner in (True, False)
    )
    entered = {label for one in ends if id(one) not in inner for label in one.signature.successors}
    has_one_way = len(entry) == len(latch) == 1 and entered.isdisjoint(labels[1:])
    if not has_one_way or not entry[0].name == latch[0].name == _BRANCH:
        return
    values: dict[str, Operation | None] = {
        argument.name: None for block in body for argument in block.arguments
    }
    for block in body:
        values |= {name: one for one in block.operations for name in one.result_names}
    strides = {
        argument.name: stride
        for argument, following in zip(head.arguments, latch[0].operand_names, strict=True)
        if argument.type == _WIDE
        for stride in _added(argument.name, values.get(following))
        if stride not in values
    }
    if strides:
        yield _Loop(head, entry[0], latch[0], values, strides)


def _label(text: str) -> str:
    return text.partition(":")[0].partition("(")[0]


def _added(name: str, made: Operation | None) -> list[str]:
    """Return the value that a sum adds to the value `name`; empty for other operations."""
    if made is None or made.name != _SUM or made.operand_names.count(name) != 1:
        return []
    return [one for one in made.operand_names if one != name]


def _addresses(loop: _Loop) -> Iterable[_Family]:
    """Return the addresses whose index has one varying term, a stepped value, grouped by array, element type and value.

    Each address has the terms of its index.
    """
    families: dict[tuple[str, str, str], list[tuple[Operation, _Terms]]] = {}
    for operation in loop.values.values():
        if operation is None or operation.name != ADDRESS:
            continue
        pointer, *indices = operation.operands
        is_wide = [one.type for one in indices] == [_WIDE] and is_alone(operation)
        if is_wide and pointer.type in POINTERS and pointer.name not in loop.values:
            terms = Counter(_terms(indices[0].name, loop.values))
            changing = [name for name in terms.elements() if name in loop.values]
            if len(changing) == 1 and changing[0] in loop.strides:
                key = (pointer.name, operation.attribute("elem_type"), changing[0])
                families.setdefault(key, []).append((operation, terms))
    return families.values()


def _terms(name: str, values: Mapping[str, Operation | None]) -> Iterator[str]:
    """Yield the terms of a value. Sums outside the loop are not split."""
    made = values.get(name)
    if made is None or made.name != _SUM:
        yield name
    else:
        for operand in made.operand_names:
            yield from _terms(operand, values)


def _common(family: _Family) -> _Terms:
    return reduce(lambda left, right: left & right, (terms for _, terms in family))


def _stepped(rewriter: Rewriter, loop: _Loop, family: _Family) -> Iterator[tuple[Operation, _Sum]]:
    """Add a pointer argument to the loop header.

    Yields the sums that its entry branch and its latch pass to it, and the sum for each address.
    """
    pattern, common = family[0][0], _common(family)
    (name,) = (one for one in common if one in loop.strides)
    base = pattern.operands[0]
    pointer = Value(rewriter.fresh_name(), base.type)
    fixed = (one for one in common.elements() if one != name)
    yield loop.entry, _Sum(pattern, base, (*fixed, loop.first(name)))
    yield loop.latch, _Sum(pattern, pointer, (loop.strides[name],))
    for operation, terms in family:
        yield operation, _Sum(pattern, pointer, tuple((terms - common).elements()))
    loop.head.add_argument(pointer)


def _insert(rewriter: Rewriter, operation: Operation, sums: Sequence[_Sum]) -> None:
    """Insert the sums before a branch and add them to its operands, or replace an address by its sum."""
    made = [_add_one_by_one(rewriter, one) for one in sums]
    if operation.name == _BRANCH:
        operation.operands = (*operation.operands, *made)
        rewriter.insert(operation)
    else:
        rewriter.replace(operation, made)


def _add_one_by_one(rewriter: Rewriter, added: _Sum) -> Value:
    names = ("elem_type", "rawConstantIndices")
    properties: dict[str, str] = {name: added.pattern.attribute(name) for name in names}
    if added.pattern.has(FLAGS):
        properties[FLAGS] = NO_FLAGS
    pointer = added.pointer
    for term in added.terms:
        operands = (pointer, Value(term, _WIDE))
        pointer = rewriter.value(ADDRESS, operands, pointer.type, properties)
    return pointer
