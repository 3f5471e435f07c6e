"""Hoist the loop-invariant terms of element addresses, for a 32-bit `index`.

An element index is lowered to one narrow sum, `row * stride + column`, and each iteration extends it to a 64-bit
address. If the terms are added to the pointer one by one, LLVM adds the invariant terms before the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from mlir_offload.translate.mlir.operation import Block, Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter

ADDRESS, _SUM, _PRODUCT = "llvm.getelementptr", "llvm.add", "llvm.mul"
_NARROW = "i32"
# 64-bit pointers. Pointers to workgroup memory have 32 bits.
POINTERS = frozenset({"!llvm.ptr", "!llvm.ptr<1>"})
_NO_SIGNED_WRAP = 1  # LLVM::IntegerOverflowFlags::nsw
FLAGS, NO_FLAGS = "noWrapFlags", "0 : i32"
_MOST_TERMS = 8


class _Term(Struct, frozen=True):
    """A term of a sum: a value, and the last loop that changes it (the number of its first block, 0 for none).

    `is_row`: the term is the product of an index and a stride.
    """

    name: str
    loop: int = 0
    is_row: bool = False


_Terms = tuple[_Term, ...]


def split_addresses(functions: Iterable[Operation]) -> None:
    """Add the terms of narrow indices to pointers one by one if that removes work from an innermost loop.

    The address does not change: without overflow (`nsw`), a narrow sum equals the sum of its terms in 64 bits.
    """
    rewriter = Rewriter("%mo_address_")
    for function in functions:
        rewriter.rewrite_chosen(
            function, dict(_slow_addresses(function)), partial(_add_one_by_one, rewriter)
        )


def _slow_addresses(function: Operation) -> Iterator[tuple[int, _Terms]]:
    """Yield the `id` of each address to split, with the terms of its index."""
    blocks = [block for region in function.regions for block in region.blocks]
    loops = {number: loop.start for loop in innermost_loops(blocks) for number in loop}
    known: dict[str, _Terms] = {}
    for number, block in enumerate(blocks):
        loop = loops.get(number, 0)
        for argument in block.arguments if loop else ():
            known[argument.name] = (_Term(argument.name, loop),)
        for operation in block.operations:
            if loop and operation.name == ADDRESS and _is_narrow(operation):
                terms = known.get(operation.operand_names[1], ())
                if _is_slow(terms, loop):
                    yield id(operation), terms
            for name in operation.result_names:
                known[name] = _terms(name, operation, known)


def innermost_loops(blocks: Sequence[Block]) -> list[range]:
    """Return the block numbers of each innermost loop without a loop annotation."""
    names = (block.label.partition(":")[0].partition("(")[0] for block in blocks)
    numbers = {name: number for number, name in enumerate(names)}
    branches = [
        (numbers[label], number, branch.has("loop_annotation"))
        for number, block in enumerate(blocks)
        for branch in block.operations[-1:]
        for label in branch.signature.successors
        if numbers[label] <= number
    ]
    return [
        range(first, last + 1)
        for first, last, is_annotated in branches
        if not is_annotated and not any(first < other <= last for other, _, _ in branches)
    ]


def _is_narrow(address: Operation) -> bool:
    pointer, *indices = address.operand_types
    is_known = pointer in POINTERS and address.has(FLAGS)
    return is_known and indices == [_NARROW] and is_alone(address)


def is_alone(address: Operation) -> bool:
    """Return whether an address has one index."""
    return len(address.attribute("rawConstantIndices").integers) == 1


def _terms(name: str, operation: Operation, known: Mapping[str, _Terms]) -> _Terms:
    """Return the terms of a sum that cannot overflow, otherwise the result itself as the only term."""
    terms = tuple(
        term for given in operation.operand_names for term in known.get(given, (_Term(given),))
    )
    is_exact = operation.name in {_SUM, _PRODUCT} and _is_exact(operation)
    if operation.name == _SUM and is_exact and len(terms) <= _MOST_TERMS:
        return terms
    last = max((term.loop for term in terms), default=0)
    return (_Term(name, last, operation.name == _PRODUCT and is_exact),)


def _is_exact(operation: Operation) -> bool:
    flags = operation.attribute("overflowFlags").integer or 0
    return bool(flags & _NO_SIGNED_WRAP)


def _is_slow(terms: _Terms, loop: int) -> bool:
    """Return whether some of the terms are loop-invariant, and hoisting them removes work.

    If only rows are invariant, hoisting does not help: adding a narrow index to them is cheaper than to a pointer.
    """
    is_mixed = 0 < sum(term.loop == loop for term in terms) < len(terms)
    return is_mixed and any(term.is_row == (term.loop == loop) for term in terms)


def _add_one_by_one(rewriter: Rewriter, address: Operation, terms: _Terms) -> None:
    pointer = address.operands[0]
    properties = {**address.properties, FLAGS: NO_FLAGS}
    for term in sorted(terms, key=lambda term: term.loop):
        operands = (pointer, Value(term.name, _NARROW))
        pointer = rewriter.value(ADDRESS, operands, pointer.type, properties)
    rewriter.replace(address, (pointer,))
