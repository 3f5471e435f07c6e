"""Where a thread is in its block, computed of the ids and sizes that every GPU has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.translate.legalize.arith import binary

if TYPE_CHECKING:
    from mlir_offload.translate.legalize.rewriter import DeviceRewriter
    from mlir_offload.translate.mlir.operation import Value


def linear_thread_id(rewriter: DeviceRewriter) -> Value:
    """Make the number of the thread in its block, along x, then y, then z."""
    x, y, z = rewriter.dimensions("thread_id")
    width, height = (rewriter.identifier("block_dim", dimension) for dimension in "xy")
    row = binary(rewriter, "addi", binary(rewriter, "muli", z, height), y)
    return binary(rewriter, "addi", binary(rewriter, "muli", row, width), x)


def threads_of_block(rewriter: DeviceRewriter) -> Value:
    """Make the number of threads in the block."""
    x, y, z = rewriter.dimensions("block_dim")
    return binary(rewriter, "muli", binary(rewriter, "muli", x, y), z)
