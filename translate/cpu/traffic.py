"""Which values a region of a split kernel takes out of memory, and which it leaves there.

A value that crosses barriers stays in memory: a region that does not define it need not write it
again, and one that does not use it need not read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlir_offload.translate.cpu.values import (
    Block,
    defined_name,
    incoming,
    opcode,
    used_names,
)

_BARRIER = "mo.b"


class RegionTraffic:
    """What is read and written between barriers, of the values that have a place in memory."""

    def __init__(self, blocks: Sequence[Block], kept: frozenset[str]) -> None:
        """Look through the blocks once; `kept` are the values with a place in memory."""
        self._after = {
            block.label: [name for name in block.successors if not name.startswith(_BARRIER)]
            for block in blocks
        }
        self._leaves_for = {
            block.label: [name for name in block.successors if name.startswith(_BARRIER)]
            for block in blocks
        }
        self._defined = {
            block.label: kept.intersection(filter(None, map(defined_name, block.lines)))
            for block in blocks
        }
        self._used = _used(blocks, kept)
        self._changed = self._find_changed(blocks)

    def written(self, label: str) -> frozenset[str]:
        """Return the values that a region may have defined when it ends with this block."""
        return self._changed[label] | self._defined[label]

    def read(self, start: str, live: Mapping[str, frozenset[str]]) -> set[str]:
        """Return the values that the region from a barrier uses, or writes on some of its ways only.

        `live` tells what is needed behind each barrier.
        """
        found: set[str] = set()
        seen = {start}
        work = [start]
        while work:
            label = work.pop()
            found |= self._used[label]
            for barrier in self._leaves_for[label]:
                found |= self.written(label) & live[barrier]
            new = [after for after in self._after[label] if after not in seen]
            seen.update(new)
            work += new
        return found

    def _find_changed(self, blocks: Sequence[Block]) -> dict[str, frozenset[str]]:
        """Return what may have been defined since the last barrier where each block begins."""
        changed: dict[str, frozenset[str]] = {block.label: frozenset() for block in blocks}
        work = [block.label for block in blocks]
        while work:
            label = work.pop()
            leaving = changed[label] | self._defined[label]
            for after in self._after[label]:
                if not leaving <= changed[after]:
                    changed[after] |= leaving
                    work.append(after)
        return changed


def _used(blocks: Sequence[Block], kept: frozenset[str]) -> dict[str, set[str]]:
    """Return the values that the instructions of each block use; a phi uses at the end of an edge."""
    used: dict[str, set[str]] = {block.label: set() for block in blocks}
    for block in blocks:
        for line in block.lines:
            if opcode(line) == "phi":
                for value, label in incoming(line):
                    used[label] |= kept & {value}
            else:
                used[block.label] |= kept.intersection(used_names(line))
    return used
