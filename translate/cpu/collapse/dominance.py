"""Reachability and dominance of the pieces of a control-flow graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

P = TypeVar("P")


def reached_from(starts: Sequence[P], after: Callable[[P], Iterable[P]]) -> set[P]:
    """Return the pieces that can be reached from `starts`, which are included."""
    seen = set(starts)
    work = list(starts)
    while work:
        for other in after(work.pop()):
            if other not in seen:
                seen.add(other)
                work.append(other)
    return seen


def dominators_of(
    pieces: Sequence[P],
    roots: Sequence[P],
    before: Callable[[P], Iterable[P]],
    after: Callable[[P], Iterable[P]],
) -> dict[P, set[P]]:
    """Return the dominators of each piece that can be reached from the roots; with reversed edges, its post-dominators."""
    seen = reached_from(roots, after)
    order = [piece for piece in pieces if piece in seen]
    found = {piece: set(pieces) for piece in order}
    for root in roots:
        found[root] = {root}
    changed = True
    while changed:
        changed = False
        for piece in order:
            if piece in roots:
                continue
            common = set.intersection(*(found[p] for p in before(piece) if p in found)) | {piece}
            if common != found[piece]:
                found[piece] = common
                changed = True
    return found
