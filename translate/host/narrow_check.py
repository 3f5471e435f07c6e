"""Check at launches that the values of kernels with 32-bit indices fit."""

from __future__ import annotations

from collections.abc import Iterator

from mlir_offload.translate.gpu_module import arguments_of, grid_and_block
from mlir_offload.translate.kernel import WIDE, Descriptor, parse_descriptor, position_of
from mlir_offload.translate.mlir.operation import Operation, Value
from mlir_offload.translate.mlir.rewriter import Rewriter

_CAST = "builtin.unrealized_conversion_cast"
_LESS_OR_EQUAL, _GREATER_OR_EQUAL = 3, 5  # arith::CmpIPredicate: sle, sge
_LARGEST = 2**31 - 1


def check_fits(rewriter: Rewriter, launch: Operation, kernel: str) -> None:
    """Insert an assertion that the sizes, indices and threads of a launch fit in 32 bits."""
    conditions = list(_conditions(rewriter, launch))
    if not conditions:
        return
    all_fit, *others = conditions
    for condition in others:
        all_fit = rewriter.value("arith.andi", (all_fit, condition), "i1")
    message = f"kernel {kernel}: a launch exceeds 32-bit indices; compile with --index-bits=64"
    rewriter.create("cf.assert", (all_fit,), properties={"msg": f'"{message}"'})


def _conditions(rewriter: Rewriter, launch: Operation) -> Iterator[Value]:
    for value in arguments_of(launch):
        if value.type == "index":
            number = rewriter.value("arith.index_cast", (value,), "i64")
            yield _compare(rewriter, number, _LESS_OR_EQUAL, _LARGEST)
            yield _compare(rewriter, number, _GREATER_OR_EQUAL, -_LARGEST - 1)
        descriptor = parse_descriptor(value.type)
        if descriptor is not None:
            yield _compare(rewriter, _extent(rewriter, value, descriptor), _LESS_OR_EQUAL, _LARGEST)
    grid, block = grid_and_block(launch)
    for blocks, threads in zip(grid, block, strict=True):
        count = rewriter.value("arith.muli", (blocks, threads), blocks.type)
        if count.type == "index":
            count = rewriter.value("arith.index_cast", (count,), "i64")
        if count.type == "i64":
            yield _compare(rewriter, count, _LESS_OR_EQUAL, _LARGEST)


def _extent(rewriter: Rewriter, value: Value, descriptor: Descriptor) -> Value:
    """Return an upper bound of the element indices, from the sizes and strides of a memref."""
    struct = rewriter.value(_CAST, (value,), descriptor.struct_type(WIDE))
    numbers = {
        place: _constant(rewriter, number)
        if number is not None
        else rewriter.value("llvm.extractvalue", (struct,), "i64", position_of(place))
        for place, number in descriptor.places()
    }
    (_, total), *others = numbers.items()
    rank = len(descriptor.sizes)
    values = [number for _, number in others]
    for size, stride in zip(values[:rank], values[rank:], strict=True):
        part = rewriter.value("arith.muli", (size, stride), "i64")
        total = rewriter.value("arith.addi", (total, part), "i64")
    return total


def _constant(rewriter: Rewriter, number: int) -> Value:
    return rewriter.value("arith.constant", (), "i64", {"value": f"{number} : i64"})


def _compare(rewriter: Rewriter, value: Value, predicate: int, limit: int) -> Value:
    operands = (value, _constant(rewriter, limit))
    return rewriter.value("arith.cmpi", operands, "i1", {"predicate": f"{predicate} : i64"})
