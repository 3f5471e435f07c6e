"""Kernels with many barriers: further ones keep each region from reaching all that follow.

A barrier may be added where every thread comes by exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from mlir_offload.translate.cpu.kernel import BARRIER, BARRIER_PLACE
from mlir_offload.translate.cpu.values import Block, opcode

# A kernel with fewer barriers is split at these alone: each costs a pass over the threads.
_FEW = 16
_MOST_BEFORE_ONE = 8


def with_bounded_regions(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks with further barriers, on edges that every run of the function takes once."""
    barriers = [line for block in blocks for line in block.lines if BARRIER.search(line)]
    if len(barriers) <= _FEW:
        return list(blocks)
    added = BARRIER_PLACE.sub("null", barriers[0])
    edges = _edges_on_all_ways(blocks)
    passed = 0
    result: list[Block] = []
    moved: dict[tuple[str, str], str] = {}
    for number, block in enumerate(blocks):
        result.append(block)
        passed += sum(BARRIER.search(line) is not None for line in block.lines)
        edge = edges[number]
        if edge is not None and passed >= _MOST_BEFORE_ONE:
            moved[edge] = f"mo.cut{number}"
            result.append(Block(moved[edge], [added, f"  br label %{edge[1]}"]))
            passed = 0
    for (before, after), label in moved.items():
        _redirect(result, before, after, label)
    return result


def _redirect(blocks: Sequence[Block], before: str, after: str, label: str) -> None:
    """Lead an edge through another block."""
    for block in blocks:
        if block.label == before:
            block.lines[-1] = block.lines[-1].replace(f"label %{after}", f"label %{label}", 1)
        elif block.label == after:
            block.lines = [
                line.replace(f", %{before} ]", f", %{label} ]") if opcode(line) == "phi" else line
                for line in block.lines
            ]


def _edges_on_all_ways(blocks: Sequence[Block]) -> list[tuple[str, str] | None]:
    """Return for each block the edge that is the only one to lead from it or before to behind it.

    Every run of the function takes such an edge exactly once, in whatever order the blocks are.
    """
    position = {block.label: number for number, block in enumerate(blocks)}
    end = len(blocks)
    edges = [
        (here, there)
        for here, block in enumerate(blocks)
        # A block without successors ends the function.
        for there in [position[label] for label in block.successors] or [end]
    ]
    # How many edges more pass behind a block than behind the one before; and the sum of their numbers.
    more, sums = [0] * (end + 1), [0] * (end + 1)
    for number, (here, there) in enumerate(edges):
        for place, sign in ((min(here, there), 1), (max(here, there), -1)):
            more[place] += sign
            sums[place] += sign * number
    passing = zip(accumulate(more[:end]), accumulate(sums[:end]), strict=True)
    sole = [edges[number] if count == 1 else None for count, number in passing]
    return [
        (blocks[edge[0]].label, blocks[edge[1]].label) if edge and edge[1] < end else None
        for edge in sole
    ]
