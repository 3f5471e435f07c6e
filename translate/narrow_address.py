"""Addresses of elements in loops where `index` has 32 bits: what a loop does not change is added first.

The index of an element is lowered to one narrow sum, `row * stride + column`, of which each step makes an address
of 64 bits. With terms that are added to the pointer one by one, LLVM adds those that stay the same before the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from mlir_offload.translate.mlir.operation import Block, Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter

ADDRESS, _SUM, _PRODUCT = "llvm.getelementptr", "llvm.add", "llvm.mul"
_NARROW = "i32"
# Pointers of 64 bits; those to workgroup memory have 32.
POINTERS = frozenset({"!llvm.ptr", "!llvm.ptr<1>"})
_NO_SIGNED_WRAP = 1  # LLVM::IntegerOverflowFlags::nsw
FLAGS, NO_FLAGS = "noWrapFlags", "0 : i32"
_MOST_TERMS = 8


class _Term(Struct, frozen=True):
    """A term of a sum: a value, and the last loop that changes it, by the number of its first block, 0 for none.

    `is_row`: it is the product of an index and a stride.
    """

    name: str
    loop: int = 0
    is_row: bool = False


_Terms = tuple[_Term, ...]


def split_addresses(functions: Iterable[Operation]) -> None:
    """Add the terms of narrow indices to pointers one by one where that leaves less to do in an innermost loop.

    The address is the same: a sum that does not overflow (`nsw`) is what its terms are in 64 bits, added up.
    """
    rewriter = Rewriter("%mo_address_")
    for function in functions:
        rewriter.rewrite_chosen(
            function, dict(_slow_addresses(function)), partial(_add_one_by_one, rewriter)
        )


def _slow_addresses(function: Operation) -> Iterator[tuple[int, _Terms]]:
    """Yield the `id` of each such address with the terms of its index."""
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
    """Return the numbers of the blocks of each loop without another one in it, that is not to be unrolled."""
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
    """Say whether an address has one index."""
    return len(address.attribute("rawConstantIndices").integers) == 1


def _terms(name: str, operation: Operation, known: Mapping[str, _Terms]) -> _Terms:
    """Return the terms of a result: itself, if it is no sum that cannot overflow."""
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
    """Say whether a loop leaves some of the terms alone, and is better off without them.

    It is not where all that it leaves alone are rows: to these a narrow index is added for less than to a pointer.
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
