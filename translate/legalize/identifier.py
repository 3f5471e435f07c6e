"""Numbers of threads and subgroups, computed of those that every GPU has."""

from __future__ import annotations

from mlir_offload.translate.legalize.arith import binary, convert
from mlir_offload.translate.legalize.rewriter import DeviceRewriter
from mlir_offload.translate.legalize.thread import linear_thread_id, threads_of_block
from mlir_offload.translate.mlir.operation import Operation


def subgroup_size(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Make the size of a subgroup, which the form knows."""
    rewriter.replace(operation, (rewriter.index(rewriter.form.subgroup_size),))


def subgroup_id(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Number the subgroups along x, then y, then z."""
    linear = linear_thread_id(rewriter)
    size = rewriter.index(rewriter.form.subgroup_size)
    rewriter.replace(operation, (binary(rewriter, "divui", linear, size),))


def num_subgroups(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Make the number of subgroups in the block, the last of which may be a part."""
    threads = threads_of_block(rewriter)
    size = rewriter.index(rewriter.form.subgroup_size)
    rewriter.replace(operation, (binary(rewriter, "ceildivui", threads, size),))


def global_id(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Make the number of the thread in the grid, along one dimension."""
    dimension = operation.attribute("dimension").enumerator
    block, extent, thread = (
        rewriter.identifier(kind, dimension) for kind in ("block_id", "block_dim", "thread_id")
    )
    start = binary(rewriter, "muli", block, extent)
    rewriter.replace(operation, (binary(rewriter, "addi", start, thread),))


def cluster_dim_blocks(rewriter: DeviceRewriter, operation: Operation) -> None:
    """Read the special register: LLVM 19 lowers the other operations on clusters only."""
    dimension = operation.attribute("dimension").enumerator
    blocks = rewriter.value(f"nvvm.read.ptx.sreg.cluster.nctaid.{dimension}", (), "i32")
    rewriter.replace(operation, (convert(rewriter, "index_cast", blocks, "index"),))
