"""Where a thread is in its block, computed of the ids and sizes that every GPU has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.translate.fixup.rewriter import BINARY

if TYPE_CHECKING:
    from mlir_offload.translate.fixup.rewriter import Place, Rewriter, Value


def linear_thread_id(rewriter: Rewriter, place: Place) -> Value:
    """Make the number of the thread in its block, along x, then y, then z."""
    x, y, z = yield from rewriter.dimensions("thread_id", place)
    width = yield from rewriter.identifier("block_dim", "x", place)
    height = yield from rewriter.identifier("block_dim", "y", place)
    plane = yield from rewriter.value(f'"arith.muli"({z}, {height})', BINARY, place)
    row = yield from rewriter.value(f'"arith.addi"({plane}, {y})', BINARY, place)
    start = yield from rewriter.value(f'"arith.muli"({row}, {width})', BINARY, place)
    return (yield from rewriter.value(f'"arith.addi"({start}, {x})', BINARY, place))


def threads_of_block(rewriter: Rewriter, place: Place) -> Value:
    """Make the number of threads in the block."""
    x, y, z = yield from rewriter.dimensions("block_dim", place)
    area = yield from rewriter.value(f'"arith.muli"({x}, {y})', BINARY, place)
    return (yield from rewriter.value(f'"arith.muli"({area}, {z})', BINARY, place))
