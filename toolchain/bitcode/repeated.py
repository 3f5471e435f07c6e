"""Blocks that many modules of one writer have alike: each is read once and known by its bytes."""

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

# Width of the abbreviation numbers, and the bytes.
Content = tuple[int, bytes]

# A larger one is hardly that of another module too.
_USUAL_BYTES = 1 << 12


class Front(Struct, frozen=True):
    """What modules of one writer have alike up to their data layout: types, attributes, texts.

    `content` are the bytes from the begin of the module on, `position` is where the rest begins.
    """

    module: Block
    content: bytes
    position: int
    version: int
    texts: Mapping[int, str]
    source: Record | None
    blocks: Sequence[Block]
    shared: Mapping[int, Sequence[Abbreviation]]
    abbreviations: Sequence[Abbreviation]

    def is_of(self, stream: BitStream, module: Block) -> bool:
        """Return whether a module begins with it."""
        own = self.module
        return (
            own.begin == module.begin
            and own.width == module.width
            and stream.data.startswith(self.content, module.begin >> 3)
            and self.position <= module.end
        )


# The one read last: the next module of a link is most often of the same writer.
fronts: deque[Front] = deque(maxlen=1)


def read_repeated(
    stream: BitStream, blocks: Iterable[Block], read: Callable[[tuple[Content, ...]], _Result]
) -> _Result | None:
    """Return what `read`, which keeps its results, makes of blocks; None where the caller has to.

    That is for blocks which depend on others, are large, or are malformed: the caller's error names
    the place in the file.
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
    """Return the records of such blocks. Raises VerificationError where there is a block in one."""
    for width, content in contents:
        stream = BitStream(memory_view(content))
        for entry in BlockReader(stream, Block(0, 0, stream.size, width)):
            if isinstance(entry, Block):
                raise stream.malformed(entry.begin, "block", "another block is in it")
            yield entry
