"""Additional barriers for kernels with many barriers, which limit the size of the segments.

Without them, the segment after a barrier may extend to each of the later barriers.
"""

from __future__ import annotations

from mlir_offload.translate.cpu.collapse.piece import Graph, Piece

# Kernels with up to this number of barriers get no more, because each costs a loop over the threads.
_FEW = 16
_MOST_BEFORE_ONE = 8


def add_barriers(graph: Graph) -> None:
    """Add barriers after some of the pieces that every thread executes exactly once."""
    if sum(piece.is_barrier for piece in graph.order) <= _FEW:
        return
    in_loops = set[Piece]().union(*graph.loops.values())
    passed, places = 0, list[Piece]()
    for piece in graph.order:
        passed += piece.is_barrier
        is_on_all_ways = piece in graph.post_dominators[graph.entry] and piece not in in_loops
        if passed >= _MOST_BEFORE_ONE and is_on_all_ways and piece.can_end_with_a_barrier:
            places.append(piece)
            passed = 0
    for piece in places:
        graph.wait_behind(piece)
    graph.find_order()
