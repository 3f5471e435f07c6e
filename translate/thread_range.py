"""Adjust the ranges of thread IDs and block IDs.

Thread IDs that are used only in addresses get the range for blocks of any size. Block IDs of AMD GPUs get a limit.

If a block is known to have 32 threads along x, LLVM combines `32 * block + thread` with `or disjoint` instead of
`add`. The back ends fuse fewer instructions with an `or`, and ptxas and loop optimizations do not treat it as a sum.

AMD GPUs count the threads of a grid in each dimension with 32 bits (hsa_kernel_dispatch_packet_t, HSA Runtime 1.2, 2.9).
Therefore `32 * block` fits in 32 bits if a block is known to have at least 32 threads.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlir_offload.translate.mlir.operation import Operation
from mlir_offload.translate.mlir.syntax import Attribute

_IDS = ("nvvm.read.ptx.sreg.tid.", "rocdl.workitem.id.")
# The syntax of LLVM 22. LLVM 19 uses an array for AMD GPUs, and is less affected by the problem.
_RANGE = "#llvm.constant_range<i32, 0, "
_BLOCK_ID, _BLOCK_SIZE = "rocdl.workgroup.id.", "rocdl.reqd_work_group_size"
_MOST_THREADS, _LARGEST = 1 << 32, (1 << 31) - 1
_ONE, _ANY = f"{_RANGE}1>", Attribute(f"{_RANGE}1024>")
_ADDRESS, _COMPARISON, _CONSTANT = "llvm.getelementptr", "llvm.icmp", "llvm.mlir.constant"
_SUMS = frozenset(f"llvm.{name}" for name in ("add", "sub", "mul", "shl", "sext", "zext", "trunc"))
_EQUALITIES = frozenset({0, 1})  # LLVM::ICmpPredicate: eq, ne


def widen_ranges(functions: Iterable[Operation]) -> None:
    """Widen the range of each thread ID that is used only in addresses and in sums with other values."""
    for function in functions:
        inside = function.walk_inside()
        ids = {
            one.result_text: one
            for one in inside
            if one.name.startswith(_IDS) and _is_ranged(one)
            if one.attribute("range") != _ONE
        }
        for name in ids.keys() - _deciding(inside, ids) if ids else ():
            ids[name].set_attribute("range", _ANY)


def bound_blocks(functions: Iterable[Operation]) -> None:
    """Add the range for the largest grid of the known block size to block IDs of AMD GPUs without a range."""
    for function in functions:
        sizes = function.attribute(_BLOCK_SIZE).integers
        inside = function.walk_inside() if sizes else []
        # Thread ID ranges in this syntax imply LLVM 22: LLVM 19 has no ranges for block IDs.
        if any(one.name.startswith(_IDS) and _is_ranged(one) for one in inside):
            names = (f"{_BLOCK_ID}{letter}" for letter in "xyz")
            limits = {
                name: -(-_MOST_THREADS // size)
                for name, size in zip(names, sizes, strict=False)
                if size > 0
            }
            for one in inside:
                limit = limits.get(one.name, _MOST_THREADS)
                if limit <= _LARGEST and not one.has("range"):
                    one.properties["range"] = Attribute(f"{_RANGE}{limit}>")


def _is_ranged(identifier: Operation) -> bool:
    return identifier.attribute("range").startswith(_RANGE)


def _deciding(operations: Iterable[Operation], ids: Iterable[str]) -> set[str]:
    """Return the IDs whose range may affect an operation, alone or combined with constants and other IDs."""
    made_of = {name: {name} for name in ids}
    deciding = set[str]()
    for operation in operations:
        if operation.name == _CONSTANT:
            made_of[operation.result_text] = set()
        names = operation.operand_names
        used = set[str]().union(*(made_of.get(name, ()) for name in names))
        is_known = all(name in made_of for name in names)
        if operation.name in _SUMS:
            if used and is_known:
                made_of[operation.result_text] = used
        elif operation.name == _COMPARISON:
            if is_known and operation.attribute("predicate").integer not in _EQUALITIES:
                deciding |= used
        elif operation.name != _ADDRESS:
            deciding |= used
    return deciding
