"""Cache decoded blocks by their bytes, because many modules of one writer contain the same blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from mlir_offload.toolchain.bitcode.abbrev import Abbreviation
from mlir_offload.toolchain.bitcode.bitstream import BitStream, Block, Record
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError

_Result = TypeVar("_Result")

# The width of the abbreviation IDs, and the bytes of a block.
Content = tuple[int, bytes]

# Larger blocks are not cached, because they rarely repeat.
_USUAL_BYTES = 1 << 12


class Front(Struct, frozen=True):
    """The decoded front of a module up to its data layout, which modules of one writer have in common.

    `content` are the bytes of the front; `position` is its end.
    """

    module: Block
    content: bytes
    position: int
    version: int
    texts: Mapping[int, str]
    source: Record | None
    blocks: Mapping[int, Sequence[Block]]
    shared: Mapping[int, tuple[Abbreviation, ...]]
    abbreviations: Sequence[Abbreviation]

    def is_of(self, stream: BitStream, module: Block) -> bool:
        """Return whether a module begins with this front."""
        own = self.module
        return (
            own.begin == module.begin
            and own.width == module.width
            and stream.data.startswith(self.content, module.begin >> 3)
            and self.position <= module.end
        )


# The last front that was read. The next module of a link is usually of the same writer.
fronts: deque[Front] = deque(maxlen=1)


def read_repeated(
    stream: BitStream, blocks: Iterable[Block], read: Callable[[tuple[Content, ...]], _Result]
) -> _Result | None:
    """Return the result of `read`, which caches its results, for blocks; None if the caller must read them.

    The caller must read blocks that depend on BLOCKINFO, large blocks, and malformed blocks: its error contains
    the position in the file.
    """
    found: list[Content] = []
    for block in blocks:
        if block.inherited or block.end - block.begin > 8 * _USUAL_BYTES:
            return None
        found.append((block.width, stream.data[block.begin >> 3 : block.end >> 3]))
    try:
        return read(tuple(found))
    except VerificationError:
        return None


def records_in(contents: Iterable[Content]) -> Iterator[Record]:
    """Yield the records of blocks. Raises VerificationError if one contains a nested block."""
    for width, content in contents:
        stream = BitStream(memory_view(content))
        for entry in BlockReader(stream, Block(0, 0, stream.size, width)):
            if isinstance(entry, Block):
                raise stream.malformed(entry.begin, "block", "another block is in it")
            yield entry
