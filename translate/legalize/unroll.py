"""Unroll grid-stride loops like nvcc: several steps per iteration, and a remainder loop.

LLVM unrolls a loop with a variable step only if it may compute the trip count with a division.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from mlir_offload.translate.mlir.operation import Block, Operation, Region, Value
from mlir_offload.translate.mlir.rewriter import Rewriter
from mlir_offload.translate.mlir.syntax import Attribute

_STEPS = 4  # Per iteration of the unrolled loop; a power of two.
_LARGEST_BODY = 24
_SHORT = 16
_UNROLLED = Attribute("#llvm.loop_annotation<unroll = <full = true>>")
_EXACT = {"overflowFlags": "#arith.overflow<nsw>"}
_LESS_OR_EQUAL = 3  # arith::CmpIPredicate: sle
_TYPES = frozenset({"index", "i32", "i64"})
_SIMPLE = frozenset({"arith", "index", "math"})
_ACCESSES = frozenset({"memref.load", "memref.store", "vector.load", "vector.store"})
_CONSTANTS = frozenset({"arith.constant", "index.constant", "llvm.mlir.constant"})


def unroll_loops(module: Operation, *, is_narrow: bool) -> None:
    """Unroll innermost loops of a `gpu.module`. `is_narrow`: its `index` is narrower than that of the host."""
    unroll_strided_loops(module)
    if is_narrow:
        unroll_short_loops(module)


def unroll_strided_loops(module: Operation) -> None:
    """Unroll the innermost loops of a `gpu.module` with a variable step."""
    for function in module.operations:
        inside = function.walk_inside()
        # A constant in one region may have the name of another value in a sibling region.
        constants = {name for one in inside if one.name in _CONSTANTS for name in one.result_names}
        chosen = {id(one): _STEPS for one in inside if _is_fit(one, constants)}
        if chosen:
            rewriter = Rewriter("%mo_unrolled_")
            rewriter.rewrite_chosen(function, chosen, partial(_unroll, rewriter))


def unroll_short_loops(module: Operation) -> None:
    """Make LLVM unroll the innermost loops of a `gpu.module` with a small constant trip count.

    LLVM does this automatically with 64-bit indices. With narrow indices, it estimates too high a cost for addresses.
    """
    for function in module.operations:
        inside = function.walk_inside()
        constants = _numbers(inside)
        for loop in inside:
            if loop.name != "scf.for" or loop.attributes:
                continue
            first, end, step = (constants.get(name) for name in loop.operand_names[:3])
            body = loop.regions[0].blocks[0].operations
            if first is None or end is None or not step or len(body) > _LARGEST_BODY:
                continue
            if len(range(first, end, step)) <= _SHORT and all(map(_is_simple, body)):
                loop.set_attribute("loop_annotation", _UNROLLED)


def _numbers(operations: Iterable[Operation]) -> dict[str, int | None]:
    """Return the constants by name, None for other values and for names with several definitions."""
    found: dict[str, int | None] = {}
    for operation in operations:
        for name in operation.result_names:
            is_constant = operation.name == "arith.constant" and name not in found
            found[name] = operation.attribute("value").integer if is_constant else None
    return found


def _is_fit(loop: Operation, constants: set[str]) -> bool:
    if loop.name != "scf.for" or loop.has("unsignedCmp") or loop.attributes:
        return False
    body = loop.regions[0].blocks[0].operations
    return (
        loop.operand_names[2] not in constants
        and loop.operand_types[0] in _TYPES
        and len(body) <= _LARGEST_BODY
        and all(map(_is_simple, body))
        and any(one.name in _ACCESSES for one in body)
    )


def _is_simple(operation: Operation) -> bool:
    name = operation.name
    is_known = name.partition(".")[0] in _SIMPLE or name in _ACCESSES or name == "scf.yield"
    return is_known and not operation.regions


def _unroll(rewriter: Rewriter, loop: Operation, factor: int) -> None:
    first, end, step, *given = loop.operands
    limit, stride = _limit_and_stride(rewriter, loop, factor)
    types = [first.type, *(one.type for one in given)]
    block = _body(rewriter, loop, stride, factor)
    operands = (first, limit, stride, first, *given)
    main = rewriter.create("scf.for", operands, types, regions=[Region([block])])
    start, *carried = main.results
    loop.operands = (start, end, step, *carried)
    rewriter.insert(loop)


def _limit_and_stride(rewriter: Rewriter, loop: Operation, factor: int) -> tuple[Value, Value]:
    """Return the end and the step of the unrolled loop.

    All steps of each iteration are before the original end. If one iteration is longer than the whole range, the end is
    the start of the loop. Therefore nothing overflows up to the last step of each iteration.
    """
    first, end, step = loop.operands[:3]
    kind = first.type

    def constant(value: int) -> Value:
        return rewriter.value("arith.constant", (), kind, {"value": f"{value} : {kind}"})

    after = rewriter.value("arith.maxsi", (end, first), kind)
    span = rewriter.value("arith.subi", (after, first), kind)
    most = rewriter.value("arith.shrsi", (span, constant(factor.bit_length() - 1)), kind)
    predicate = {"predicate": f"{_LESS_OR_EQUAL} : i64"}
    fits = rewriter.value("arith.cmpi", (step, most), "i1", predicate)
    before = rewriter.value("arith.muli", (step, constant(factor - 1)), kind)
    last = rewriter.value("arith.subi", (end, before), kind)
    limit = rewriter.value("arith.select", (fits, last, first), kind)
    return limit, rewriter.value("arith.muli", (step, constant(factor)), kind)


def _body(rewriter: Rewriter, loop: Operation, stride: Value, factor: int) -> Block:
    given, step = loop.regions[0].blocks[0], loop.operands[2]
    index, *carried = (Value(one.name, one.type) for one in given.arguments)
    arguments = [Value(rewriter.fresh_name(), one.type) for one in (index, index, *carried)]
    block = Block.with_arguments(arguments)
    place, _, *values = arguments
    with rewriter.insertion_point(block.operations):
        for copy in range(factor):
            if copy:
                place = rewriter.value("arith.addi", (place, step), index.type, _EXACT)
            values = _copy(rewriter, given, place, values)
        following = rewriter.value("arith.addi", (arguments[0], stride), index.type)
        rewriter.create("scf.yield", (following, *values))
    return block


def _copy(rewriter: Rewriter, block: Block, place: Value, values: Sequence[Value]) -> list[Value]:
    """Insert a copy of a block for one step, and return the values that the step yields."""
    taken = (one.name for one in block.arguments)
    names = dict(zip(taken, (place.name, *(one.name for one in values)), strict=True))
    for operation in block.operations:
        made = operation.clone()
        made.rename_operands(names)
        if operation.name == "scf.yield":
            return list(made.operands)
        if operation.result_text:
            fresh, count = rewriter.fresh_name(), len(operation.result_names)
            made.result_text = f"{fresh}:{count}" if count > 1 else fresh
            names |= dict(zip(operation.result_names, made.result_names, strict=True))
        rewriter.insert(made)
    return list(values)
