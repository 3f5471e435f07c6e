"""Expand thread and subgroup IDs to IDs that every GPU supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlir_offload.translate.legalize.arith import binary, convert

if TYPE_CHECKING:
    from mlir_offload.translate.legalize.rewriter import DeviceRewriter
    from mlir_offload.translate.mlir.operation import Operation, Value


def subgroup_size(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Replace the subgroup size by a constant."""
    rewriter.replace(operation, (rewriter.index(rewriter.form.subgroup_size),))


def subgroup_id(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute the subgroup ID. Subgroups are numbered along x, then y, then z."""
    linear = linear_thread_id(rewriter)
    size = rewriter.index(rewriter.form.subgroup_size)
    rewriter.replace(operation, (binary(rewriter, "divui", linear, size),))


def num_subgroups(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute the number of subgroups in the block. The last one may be partial."""
    size = rewriter.form.subgroup_size
    rounded = binary(rewriter, "addi", threads_of_block(rewriter), rewriter.index(size - 1))
    rewriter.replace(operation, (binary(rewriter, "divui", rounded, rewriter.index(size)),))


def global_id(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Compute the index of the thread in the grid along one dimension."""
    dimension = operation.attribute("dimension").enumerator
    block, extent, thread = (
        rewriter.identifier(kind, dimension) for kind in ("block_id", "block_dim", "thread_id")
    )
    start = binary(rewriter, "muli", block, extent)
    rewriter.replace(operation, (binary(rewriter, "addi", start, thread),))


def cluster_dim_blocks(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Read the special register. LLVM 19 lowers only the other cluster operations."""
    dimension = operation.attribute("dimension").enumerator
    blocks = rewriter.value(f"nvvm.read.ptx.sreg.cluster.nctaid.{dimension}", (), "i32")
    rewriter.replace(operation, (convert(rewriter, "index_cast", blocks, "index"),))


def linear_thread_id(rewriter: DeviceRewriter) -> Value:
    """Compute the linear index of the thread in its block: along x, then y, then z."""
    x, y, z = rewriter.dimensions("thread_id")
    width, height = (rewriter.identifier("block_dim", dimension) for dimension in "xy")
    row = binary(rewriter, "addi", binary(rewriter, "muli", z, height), y)
    return binary(rewriter, "addi", binary(rewriter, "muli", row, width), x)


def threads_of_block(rewriter: DeviceRewriter) -> Value:
    """Compute the number of threads in the block."""
    x, y, z = rewriter.dimensions("block_dim")
    return binary(rewriter, "muli", binary(rewriter, "muli", x, y), z)
