"""Stretches: consecutive pieces that share one loop over the threads of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from mlir_offload.toolchain.llvmc.code import Opcode
from mlir_offload.translate.cpu.collapse.piece import CannotCollapseError, Graph, Piece
from mlir_offload.translate.cpu.collapse.shape import Shapes


class Core(Struct, frozen=True, eq=False):
    """The pieces of a divergent branch or a loop, with a single entry and the single exit `join`.

    `join` is None for the end of the kernel.
    """

    entry: Piece
    pieces: frozenset[Piece]
    join: Piece | None

    @property
    def is_loop(self) -> bool:
        """Return whether an edge of the core goes back to its entry."""
        return any(before in self.pieces for before in self.entry.predecessors)


class Stretch(Struct, eq=False):
    """A stretch: pieces, in topological order, that one loop over threads executes; the first is the only entry.

    A thread executes each piece of the `spine` exactly once. `core_of` contains the pieces in cores. `exit` is the
    only piece that can follow in the same segment, or None.
    """

    pieces: list[Piece] = field(default_factory=list)
    spine: list[Piece] = field(default_factory=list)
    core_of: dict[Piece, Core] = field(default_factory=dict)
    exit: Piece | None = None

    @property
    def entry(self) -> Piece:
        """Return the first piece."""
        return self.pieces[0]

    def is_inside(self, piece: Piece, after: Piece) -> bool:
        """Return whether the edge from one piece to another stays in the stretch."""
        if after is not self.entry:
            return after in self.pieces
        core = self.core_of.get(after)
        return core is not None and self.core_of.get(piece) is core


def cut_stretches(graph: Graph, shapes: Shapes) -> list[Stretch]:
    """Return the stretches of a kernel in topological order.

    Raises CannotCollapseError if threads of a row diverge before a barrier.
    """
    core_of = {piece: core for core in _cores(graph, shapes) for piece in core.pieces}
    found: list[Stretch] = []
    ends: dict[Piece, Stretch] = {}
    placed = set[Piece]()
    for piece in graph.order:
        if piece in placed:
            continue
        core = core_of.get(piece)
        pieces = [p for p in graph.order if p in core.pieces] if core else [piece]
        stretch = ends.pop(piece, None)
        if stretch is None or not _can_follow(stretch, piece, core, shapes):
            stretch = Stretch()
            found.append(stretch)
        stretch.pieces += pieces
        placed.update(pieces)
        if core is None or not core.is_loop:
            stretch.spine.append(piece)
        if core is not None:
            stretch.core_of.update(dict.fromkeys(pieces, core))
        stretch.exit = _exit(piece, core)
        if stretch.exit is not None:
            ends[stretch.exit] = stretch
    return found


def _exit(piece: Piece, core: Core | None) -> Piece | None:
    """Return the only piece that can follow in the same segment; None if there is none, or a choice."""
    if core is not None:
        return core.join
    return piece.successors[0] if len(piece.successors) == 1 and not piece.is_barrier else None


def _can_follow(stretch: Stretch, piece: Piece, core: Core | None, shapes: Shapes) -> bool:
    """Return whether a piece, or a core, can be appended to a stretch.

    Uniform and linear values are computed before the loop over threads. They must therefore not be phis of the
    piece, or loads that follow a store of the stretch.
    """
    inside = core.pieces if core else ()
    if any(p not in stretch.pieces and p not in inside for p in piece.predecessors):
        return False
    if core is not None and core.is_loop:
        return True
    shared = [value for value in piece.instructions if not shapes.is_divergent(value)]
    return all(shapes.is_divergent(phi) for phi in piece.phis) and not (
        any(value.opcode == Opcode.LOAD for value in shared)
        and any(_writes(before) for before in stretch.pieces)
    )


def _writes(piece: Piece) -> bool:
    return piece.is_serial or any(i.opcode == Opcode.STORE for i in piece.instructions)


def _cores(graph: Graph, shapes: Shapes) -> list[Core]:
    found: list[Core] = []
    for branch, region in shapes.branches.items():
        found = _with(graph, found, _closed(graph, {branch, *region.pieces}))
    for body in graph.loops.values():
        if not any(piece.is_barrier for piece in body) and _has_own_results(body, shapes):
            core = _closed(graph, body)
            if not any(piece.is_barrier for piece in core.pieces):
                found = _with(graph, found, core)
    if any(piece.is_barrier for core in found for piece in core.pieces):
        msg = "threads of a row part before a barrier"
        raise CannotCollapseError(msg)
    return found


def _has_own_results(body: set[Piece], shapes: Shapes) -> bool:
    """Return whether all results of a loop are divergent."""
    exits = {after for piece in body for after in piece.successors} - body
    return all(shapes.is_divergent(phi) for piece in exits for phi in piece.phis)


def _with(graph: Graph, cores: list[Core], added: Core) -> list[Core]:
    """Add a core; merge it with the cores that it overlaps."""
    while touching := [core for core in cores if core.pieces & added.pieces]:
        cores = [core for core in cores if core not in touching]
        added = _closed(graph, added.pieces.union(*(core.pieces for core in touching)))
    return [*cores, added]


def _closed(graph: Graph, pieces: Iterable[Piece]) -> Core:
    """Return the smallest core that contains some pieces."""
    found = frozenset(pieces)
    while True:
        entry = max(_dominating(graph, found), key=lambda p: len(graph.dominators[p]))
        join = graph.join_of(found)
        grown = found | graph.reach([entry], until=join)
        if grown == found:
            return Core(entry, found, join)
        found = grown


def _dominating(graph: Graph, pieces: Iterable[Piece]) -> Iterator[Piece]:
    return iter(set.intersection(*(graph.dominators[piece] for piece in pieces)))
