"""Create metadata in a context. Nodes are handles."""

from __future__ import annotations

from mlir_offload.toolchain.llvmc.ir import Context, Value
from mlir_offload.toolchain.llvmc.library import handles


class Metadata:
    """Creates metadata in a context."""

    def __init__(self, context: Context) -> None:
        """Take the context."""
        self._context = context.handle
        self._library = context.library

    def kind(self, name: str) -> int:
        """Return the ID of a metadata kind."""
        return self._library.call("GetMDKindIDInContext", self._context, name.encode(), len(name))

    def text(self, text: str) -> int:
        """Return a string as metadata."""
        return self._library.call("MDStringInContext2", self._context, text.encode(), len(text))

    def value(self, value: Value) -> int:
        """Return a constant as metadata."""
        return self._library.call("ValueAsMetadata", value.handle)

    def node(self, *operands: int) -> int:
        """Return a metadata node."""
        array = handles(operands)
        return self._library.call("MDNodeInContext2", self._context, array, len(operands))

    def distinct_node(self, *operands: int) -> int:
        """Return a distinct node whose first operand is the node itself, such as a loop ID."""
        own = self._library.call("TemporaryMDNode", self._context, handles(()), 0)
        node = self.node(own, *operands)
        self._library.call("MetadataReplaceAllUsesWith", own, node)
        return node
