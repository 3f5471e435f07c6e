"""Slot coalescing in rows: phis share slots with their incoming values if they do not interfere."""

from __future__ import annotations

from collections.abc import Sequence

from mlir_offload.toolchain.llvmc.ir import Value
from mlir_offload.translate.cpu.collapse.piece import Graph, Piece
from mlir_offload.translate.cpu.collapse.shape import Shapes
from mlir_offload.translate.cpu.collapse.stretch import Stretch
from mlir_offload.translate.cpu.collapse.traffic import Traffic

# Up to this number of values, unrelated values do not share slots.
_FEW = 32


class Sharing:
    """Groups of values that share a slot; a phi needs no copy of an incoming value of its group.

    A thread loads the slots that it needs at the entry of a stretch, before it stores any. Therefore two values
    only interfere if one of them is needed after the stretch that writes the other one.
    """

    def __init__(
        self, graph: Graph, shapes: Shapes, traffic: Traffic, stretches: Sequence[Stretch]
    ) -> None:
        """Find the groups."""
        self._traffic = traffic
        self._group: dict[Value, frozenset[Value]] = {}
        self._clashes: set[tuple[Value, Value]] = set()
        kept = {v for v in traffic.crossing if shapes.is_divergent(v)}
        brought: list[tuple[Value, Value]] = []
        for stretch in stretches:
            made = {v for v in kept if graph.home[v] in stretch.pieces}
            for after, edges in _ways_out(stretch, traffic, shapes).items():
                needed = kept.intersection(traffic.live(after))
                phis: set[Value] = {phi for phi, _ in edges}
                self._add_clashes(made, {*needed, *(value for _, value in edges)}, ())
                self._add_clashes(made | phis, phis, edges)
                self._add_clashes(phis, needed, edges)
                brought += edges
        for phi, value in brought:
            if value in kept:
                self._join(phi, value)
        values = dict.fromkeys((*(phi for phi, _ in brought), *traffic.in_order(kept)))
        if len(values) > _FEW:
            self._join_others(list(values))

    def _add_clashes(
        self, written: set[Value], needed: set[Value], edges: Sequence[tuple[Value, Value]]
    ) -> None:
        """Add the interference of values, except of a phi with its only incoming value."""
        sources: dict[Value, set[Value]] = {}
        for phi, value in edges:
            sources.setdefault(phi, set()).add(value)
        copies = {(phi, value) for phi, value in edges if len(sources[phi]) == 1}
        equal = {*copies, *((value, phi) for phi, value in copies)}
        for first in written:
            for second in needed:
                if first is not second and (first, second) not in equal:
                    self._clashes |= {(first, second), (second, first)}

    def group(self, value: Value) -> frozenset[Value]:
        """Return the values that share the slot of a value."""
        return self._group.get(value, frozenset((value,)))

    def _join_others(self, values: Sequence[Value]) -> None:
        """Let values of one type share slots if they do not interfere."""
        firsts: list[Value] = []
        for value in values:
            for first in firsts:
                if first.type is value.type:
                    self._join(first, value)
                    if value in self.group(first):
                        break
            else:
                firsts.append(value)

    def _join(self, first: Value, second: Value) -> None:
        left, right = self.group(first), self.group(second)
        if not any((a, b) in self._clashes for a in left for b in right):
            joined = left | right
            self._group.update(dict.fromkeys(joined, joined))

    def is_there(self, phi: Value, value: Value) -> bool:
        """Return whether the slot of a phi already contains its incoming value."""
        return value in self._traffic.crossing and self.group(phi) is self.group(value)


def _ways_out(
    stretch: Stretch, traffic: Traffic, shapes: Shapes
) -> dict[Piece, list[tuple[Value, Value]]]:
    """Return the pieces after a stretch, with their divergent phis and the incoming values from the stretch."""
    ways: dict[Piece, list[tuple[Value, Value]]] = {}
    for piece in stretch.pieces:
        for after in piece.successors:
            if not stretch.is_inside(piece, after):
                edges = ways.setdefault(after, [])
                for phi, value in traffic.edge(piece, after):
                    if shapes.is_divergent(phi):
                        edges.append((phi, value))
    return ways
