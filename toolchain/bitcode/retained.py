"""Find the nodes in the retainedNodes of DISubprograms that a release of LLVM rejects, in bitcode."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from mlir_offload.toolchain.bitcode.bitstream import Record
from mlir_offload.toolchain.bitcode.code import UNNUMBERED_METADATA, MetadataCode
from mlir_offload.toolchain.skew.limits import RetainedNode

_LISTS = (MetadataCode.NODE, MetadataCode.DISTINCT_NODE)
# The record code of a DISubprogram, its operand retainedNodes, and the flag of its layout since LLVM 8.
_SUBPROGRAM, _RETAINED, _HAS_FLAGS = 21, 15, 4


class RetainedNodes(Struct):
    """The relevant nodes of a METADATA block, by metadata ID. `outer` are the nodes of the module."""

    newer: Mapping[int, RetainedNode]
    outer: RetainedNodes | None = None
    next: int = 0
    lists: dict[int, Record] = field(default_factory=dict)
    nodes: dict[int, RetainedNode] = field(default_factory=dict)
    retained: set[int] = field(default_factory=set)

    def inner(self) -> RetainedNodes:
        """Return an empty table for the nodes of a function. Their IDs follow those of the module."""
        return RetainedNodes(self.newer, self, self.next)

    def add(self, record: Record) -> None:
        """Assign the next metadata ID to a record, and store the record if it is relevant."""
        code = record.code
        if code in UNNUMBERED_METADATA:
            return
        if code == MetadataCode.STRINGS:
            self.next += record.operand(0, "count")
            return
        if code in _LISTS:
            self.lists[self.next] = record
        elif code in self.newer:
            self.nodes[self.next] = self.newer[code]
        elif code == _SUBPROGRAM and record.count > _RETAINED:
            retained = record.operand(_RETAINED, "retained nodes")
            if retained and record.operand(0, "layout") & _HAS_FLAGS:
                self.retained.add(retained - 1)
        self.next += 1

    def unread(self) -> set[RetainedNode]:
        """Return the table rows of the nodes that are in a retainedNodes list and that the release rejects."""
        blocks = (self, self.outer) if self.outer else (self,)
        lists = (block.lists.get(number) for number in self.retained for block in blocks)
        operands = {operand - 1 for record in lists if record for operand in record.values}
        return {block.nodes[number] for block in blocks for number in operands & block.nodes.keys()}
