"""Count the contents of a bitcode file: blocks, record codes, attribute kinds.

They determine whether an older reader accepts the file. The complete file is read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mlir_offload.toolchain.bitcode.bitstream import BitStream, Block
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import BlockId
from mlir_offload.toolchain.bitcode.module import outer_blocks, read_bitcode_modules, unwrapped
from mlir_offload.toolchain.byte_view import ByteView

_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class BitcodeCensus:
    """The number of occurrences: of blocks by ID, of records by block ID and code.

    `attributes` are (form, kind) of non-string attributes, `string_attributes` the names of string
    attributes.
    """

    blocks: Counter[int] = field(default_factory=Counter)
    records: Counter[tuple[int, int]] = field(default_factory=Counter)
    attributes: Counter[tuple[int, int]] = field(default_factory=Counter)
    string_attributes: Counter[str] = field(default_factory=Counter)


def read_bitcode_census(view: ByteView) -> BitcodeCensus:
    """Count the contents of a file. Raises VerificationError for a malformed file."""
    census = BitcodeCensus()
    stream = BitStream(unwrapped(view))
    for block in outer_blocks(stream):
        if block.number == BlockId.MODULE:
            stream = stream.anew()
        _count(census, stream, block)
    for module in read_bitcode_modules(view):
        for group in module.attributes.groups():
            for one in group.attributes.values():
                if isinstance(one.kind, str):
                    census.string_attributes[one.kind] += 1
                else:
                    census.attributes[one.form, one.kind] += 1
    return census


def _count(census: BitcodeCensus, stream: BitStream, outer: Block) -> None:
    census.blocks[outer.number] += 1
    readers = [BlockReader(stream, outer)]
    while readers:
        number = readers[-1].block.number
        entry = readers[-1].next_entry()
        if entry is None:
            readers.pop()
        elif not isinstance(entry, Block):
            census.records[number, entry.code] += 1
        else:
            census.blocks[entry.number] += 1
            if len(readers) > _MAX_DEPTH:
                raise readers[-1].malformed(entry.begin, "blocks within blocks without end")
            readers.append(BlockReader(stream, entry))
