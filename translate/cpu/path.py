"""The ways from an entrance of a split kernel to the next barriers, and what they say of values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from mlir_offload.toolchain.pattern import ir_line
from mlir_offload.translate.cpu.values import POISON_FLAGS, Block, defined_name, incoming, opcode

_CONDITION = ir_line("`indent`br i1 `condition:value`, label %`then:bare`, label %`other:bare`")
_LOGIC = ir_line("`indent``local` = `operation:and|or|xor` i1 `first:value`, `second:operand`")
_SELECT = ir_line(
    "`indent``local` = select i1 `condition:value`, i1 `then:value`, i1 `other:operand`"
)
_BARRIER = "mo.b"
# Above that, finding dominators costs more time than a plain loop is worth.
_MOST_BLOCKS = 200

Place = tuple[str, int]
END_OF_BLOCK = 1 << 30


class Code(Struct, frozen=True, dict=True):
    """A kernel's blocks by label, its instructions by the value they define, and its arguments.

    `arguments` gives the text that represents each outside the kernel. Instructions that are in
    `lines` and in no block were moved to the entry.
    """

    blocks: dict[str, Block]
    lines: dict[str, str]
    arguments: dict[str, str]

    @cached_property
    def places(self) -> dict[str, Place]:
        """Return block and position of each instruction that is in a block."""
        return {
            name: (label, index)
            for label, block in self.blocks.items()
            for index, line in enumerate(block.lines)
            if (name := defined_name(line))
        }


class Region:
    """Code that runs from an entrance to the next barriers, with some conditions taken as known.

    `brought` maps values that come from behind the entrance to the text that represents them, None
    where each thread has its own.
    """

    def __init__(
        self,
        start: str,
        code: Code,
        brought: dict[str, str | None],
        assumed: dict[str, bool] | None = None,
    ) -> None:
        """Find the blocks that can be reached."""
        self.code = code
        self.brought = brought
        self.assumed = assumed or {}
        self._start = start
        self._edges: dict[str, tuple[str, ...]] = {}
        work = [start]
        while work:
            label = work.pop()
            if label not in self._edges:
                self._edges[label] = self._after(code.blocks[label])
                work.extend(after for after in self._edges[label] if not after.startswith(_BARRIER))

    def assuming(self, condition: str, *, holds: bool) -> Region:
        """Return the region where the condition is known."""
        return Region(self._start, self.code, self.brought, {**self.assumed, condition: holds})

    @property
    def labels(self) -> Iterator[str]:
        """Return the labels of the blocks that can be reached."""
        return iter(self._edges)

    @property
    def block_count(self) -> int:
        """Return the number of blocks that can be reached."""
        return len(self._edges)

    @property
    def instructions(self) -> Iterator[str]:
        """Return the instructions of the blocks that can be reached."""
        return (line for label in self._edges for line in self.code.blocks[label].lines)

    @cached_property
    def exits(self) -> tuple[int, ...]:
        """Return the numbers of the barriers that come next, 0 for the end of the kernel."""
        found = {
            int(to[4:]) for after in self._edges.values() for to in after if to.startswith(_BARRIER)
        }
        if any(opcode(self.code.blocks[label].lines[-1]) == "ret" for label in self._edges):
            found.add(0)
        return tuple(sorted(found)) or (0,)

    def exit_places(self, number: int) -> list[Place]:
        """Return where the region ends at a barrier."""
        target = f"{_BARRIER}{number}"
        return [(label, END_OF_BLOCK) for label, after in self._edges.items() if target in after]

    def place_of(self, name: str) -> Place:
        """Return where the value is defined; the start where that is the entry of the kernel."""
        return self.code.places.get(name, (self._start, 0))

    def is_new(self, name: str, place: Place) -> bool | None:
        """Say whether the value seen from the place was defined in this region.

        False where it was brought along; None where that depends on the way taken.
        """
        if name not in self.brought:
            return True
        label, index = self.code.places[name]
        if label not in self._edges:
            return False
        use, use_index = place
        if label == use and index < use_index:
            return True
        if len(self._edges) > _MOST_BLOCKS:
            return None
        if label != use and label in self._dominators[use]:
            return True
        return None if use in self._reachable_from(label) else False

    def only_operand(self, phi: str) -> tuple[str, Place] | None:
        """Return the operand of a phi that only one edge can reach, and where it is seen from."""
        label = self.code.places[phi][0]
        found = [
            (value, (before, END_OF_BLOCK))
            for value, before in incoming(self.code.lines[phi])
            if before in self._edges and label in self._edges[before]
        ]
        return found[0] if len(found) == 1 else None

    def open_conditions(self) -> list[str]:
        """Return the comparisons that branches depend on and of which nothing is known."""
        found: dict[str, None] = {}
        for label, after in self._edges.items():
            match = _CONDITION.match(self.code.blocks[label].lines[-1])
            if match and len(set(after)) > 1:
                found.update(dict.fromkeys(self._comparisons(match["condition"])))
        return list(found)

    def _after(self, block: Block) -> tuple[str, ...]:
        match = _CONDITION.match(block.lines[-1])
        truth = self._truth(match["condition"]) if match and self.assumed else None
        if match is None or truth is None:
            return block.successors
        return (match["then"] if truth else match["other"],)

    def _truth(self, value: str) -> bool | None:
        if value in {"true", "false"}:
            return value == "true"
        if value in self.assumed or value in self.brought or value not in self.code.lines:
            return self.assumed.get(value)
        parts = _logic(self.code.lines[value])
        if parts is None:
            return None
        operation, first, second = parts
        truths = (self._truth(first), self._truth(second))
        decisive = operation == "or"
        if operation in {"and", "or"} and decisive in truths:
            return decisive
        if None in truths:
            return None
        return not decisive if operation in {"and", "or"} else truths[0] != truths[1]

    def _comparisons(self, value: str) -> list[str]:
        """Return the comparisons behind a condition; only such as the region makes itself."""
        if value in self.assumed or value in self.brought or value not in self.code.lines:
            return []
        parts = _logic(self.code.lines[value])
        if parts is None:
            return [value]
        return [name for operand in parts[1:] for name in self._comparisons(operand)]

    @cached_property
    def _dominators(self) -> dict[str, set[str]]:
        before: dict[str, set[str]] = {label: set() for label in self._edges}
        for label, after in self._edges.items():
            for successor in after:
                if successor in before and successor != self._start:
                    before[successor].add(label)
        found = {label: set(self._edges) for label in self._edges}
        found[self._start] = {self._start}
        changed = True
        while changed:
            changed = False
            for label, predecessors in before.items():
                if predecessors:
                    common = set.intersection(*(found[p] for p in predecessors)) | {label}
                    changed = changed or common != found[label]
                    found[label] = common
        return found

    def _reachable_from(self, label: str) -> set[str]:
        seen: set[str] = set()
        work = [
            to for to in self._edges[label] if to in self._edges and not to.startswith(_BARRIER)
        ]
        while work:
            other = work.pop()
            if other not in seen:
                seen.add(other)
                work.extend(
                    to
                    for to in self._edges[other]
                    if to in self._edges and not to.startswith(_BARRIER)
                )
        return seen


def _logic(line: str) -> tuple[str, str, str] | None:
    """Return operation and operands of and, or, xor and select on i1."""
    match = _LOGIC.match(POISON_FLAGS.sub("", line))
    if match:
        return match[1], match[2], match[3]
    match = _SELECT.match(line)
    if match and match[3] == "false":
        return "and", match[1], match[2]
    if match and match[2] == "true":
        return "or", match[1], match[3]
    return None
