"""Addresses of elements in loops whose step is known at run time only: each array gets one pointer that is stepped.

Where a loop makes several steps at a time, loop strength reduction otherwise steps each address on its own: of
pointers that are stepped, only those of the program cost it nothing.
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
    """A loop with one way in and one way back; `values` are made inside.

    `strides`: what each round adds, from outside, to an argument of the first block.
    """

    head: Block
    entry: Operation
    latch: Operation
    values: Mapping[str, Operation | None]
    strides: Mapping[str, str]

    def first(self, name: str) -> str:
        """Return what an argument of the first block is in the first round."""
        names = [one.name for one in self.head.arguments]
        return self.entry.operand_names[names.index(name)]


class _Sum(Struct, frozen=True):
    """A pointer, and the indices to add to it one by one; it is for an address like `pattern`."""

    pattern: Operation
    pointer: Value
    terms: Sequence[str]


def step_addresses(functions: Iterable[Operation]) -> None:
    """Step a pointer for the addresses of a loop that differ by what is known at run time only.

    They stay the same: pointers and indices of 64 bits are added modulo 2**64, in whatever order.
    """
    rewriter = Rewriter("%mo_stepped_")
    for function in functions:
        sums: dict[int, list[_Sum]] = {}
        for loop, family in _families(function):
            for operation, made in _stepped(rewriter, loop, family):
                sums.setdefault(id(operation), []).append(made)
        rewriter.rewrite_chosen(function, sums, partial(_insert, rewriter))


def _families(function: Operation) -> Iterator[tuple[_Loop, _Family]]:
    """Yield the addresses to step a pointer for: of one array, in one loop, by one of its arguments."""
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
    """Yield the loop of some blocks, if it steps values by others that come from outside."""
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
    """Return what a sum adds to a value once; nothing of another operation."""
    if made is None or made.name != _SUM or made.operand_names.count(name) != 1:
        return []
    return [one for one in made.operand_names if one != name]


def _addresses(loop: _Loop) -> Iterable[_Family]:
    """Return the addresses of each array that one value which is stepped is added to once, with the terms of the index."""
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
    """Yield the terms of a sum that a loop makes."""
    made = values.get(name)
    if made is None or made.name != _SUM:
        yield name
    else:
        for operand in made.operand_names:
            yield from _terms(operand, values)


def _common(family: _Family) -> _Terms:
    return reduce(lambda left, right: left & right, (terms for _, terms in family))


def _stepped(rewriter: Rewriter, loop: _Loop, family: _Family) -> Iterator[tuple[Operation, _Sum]]:
    """Add the pointer to the loop; yield what it is before each round, and the addresses."""
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
    """Insert the sums before a branch, which gets them as operands, or in place of an address."""
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
