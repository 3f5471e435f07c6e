"""Regions: the pieces that depend on a divergent branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from mlir_offload.translate.cpu.collapse.piece import Graph, Piece


class Region(Struct, frozen=True, eq=False):
    """A region: the pieces from a divergent branch to its immediate post-dominator, the `join`.

    Only some threads of a strip may execute them. `join` is None for the end of the kernel.
    """

    pieces: frozenset[Piece]
    join: Piece | None


def region_of(graph: Graph, branch: Piece) -> Region:
    """Return the region of a divergent branch."""
    join = graph.join_of([branch])
    return Region(frozenset(graph.reach(branch.successors, until=join)), join)


def whole_kernel(graph: Graph) -> Region:
    """Return the region of a whole kernel, for strips in which some threads may not exist."""
    return Region(frozenset(graph.pieces), None)


def beyond_barriers(graph: Graph, region: Region) -> Region:
    """Return a region without barriers unchanged; extend another one to the end of the kernel.

    Some threads wait at the barrier while others continue after the join.
    """
    if region.join is None or not any(piece.is_barrier for piece in region.pieces):
        return region
    return Region(region.pieces | graph.reach([region.join]), None)


def merge_regions(graph: Graph, regions: Sequence[Region]) -> list[Region]:
    """Return disjoint regions that cover the given ones."""
    merged: list[Region] = []
    for region in sorted(regions, key=lambda r: -len(r.pieces)):
        found = region
        while True:
            touching = [other for other in merged if other.pieces & found.pieces]
            if any(found.pieces <= other.pieces for other in touching):
                break
            if not touching:
                merged.append(found)
                break
            merged = [other for other in merged if other not in touching]
            found = _union(graph, [found, *touching])
    return merged


def _union(graph: Graph, regions: Sequence[Region]) -> Region:
    pieces = frozenset[Piece]().union(*(region.pieces for region in regions))
    join = graph.join_of(pieces)
    return Region(frozenset(graph.reach(pieces, until=join)), join)


def divergent_joins(graph: Graph, branch: Piece, region: Region) -> Iterator[Piece]:
    """Yield the pieces whose phis are divergent, because they depend on the path of a thread from the branch."""
    ways = [
        {*graph.reach([after], until=region.join), *_only(region.join)}
        for after in branch.successors
    ]
    common = set.intersection(*ways)
    for piece in graph.order:
        if piece in common and piece.phis and _forward_predecessors(graph, piece) > 1:
            yield piece
    for header, body in graph.loops.items():
        # Threads exit the loop in different iterations (temporal divergence).
        if branch in body and (header in region.pieces or header is branch):
            yield from (
                after
                for piece in graph.order
                if piece in body
                for after in piece.successors
                if after not in body and after.phis
            )


def _only(piece: Piece | None) -> Iterable[Piece]:
    return () if piece is None else (piece,)


def _forward_predecessors(graph: Graph, piece: Piece) -> int:
    body = graph.loops.get(piece, ())
    return sum(before not in body for before in piece.predecessors)
