"""Read the named metadata, module flags and function attachments of a bitcode module."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from copy import copy
from itertools import accumulate

from msgspec import Struct

from mlir_offload.toolchain.bitcode.bit_array import vbr6_end, vbr6_numbers
from mlir_offload.toolchain.bitcode.bitstream import Block, Record
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import UNNUMBERED_METADATA, BlockId, MetadataCode
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction, Symbol
from mlir_offload.toolchain.bitcode.module import BitcodeModule

_MAX_BLOCKS = 16  # At module level; LLVM writes one.
_NODES = frozenset({MetadataCode.NODE, MetadataCode.DISTINCT_NODE})


class NodeNumber(Struct, frozen=True):
    """A reference to metadata other than a string or a constant, usually to a node."""

    number: int


Metadatum = str | int | Symbol | NodeNumber | None


class MetadataTable:
    """The metadata of a module. IDs are consecutive over all blocks; nodes are decoded on demand."""

    __slots__ = ("_constants", "_left", "_named", "_segments")

    def __init__(self, module: BitcodeModule, constants: ConstantTable) -> None:
        """Locate the nodes, and read the named metadata. Raises VerificationError if they are malformed."""
        self._constants = constants
        self._named: dict[str, tuple[int, ...]] = {}
        self._segments: list[_Segment] = []
        # The limit of operands that are read, because the positions in an index may overlap.
        self._left = module.content.stream.size
        if len(module.content.metadata) > _MAX_BLOCKS:
            reason = f"it has {len(module.content.metadata)} blocks of metadata"
            raise module.content.stream.malformed(module.content.module.begin, "module", reason)
        for block in module.content.metadata:
            self._add(BlockReader(module.content.stream, block))

    def _add(self, reader: BlockReader) -> None:
        begin = self._segments[-1].end if self._segments else 0
        segment = _Segment(reader, begin)
        self._segments.append(segment)
        self._named |= segment.named

    def within(self, reader: BlockReader) -> MetadataTable:
        """Return the metadata that are visible in a function: those of the module and of the function's block."""
        inner = copy(self)
        inner._segments = [*self._segments]  # noqa: SLF001 (of this class)
        inner._add(reader)  # noqa: SLF001
        return inner

    def named(self, name: str) -> Iterator[tuple[Metadatum, ...]]:
        """Return the operands of each distinct node of a named metadata list."""
        return (self.node(number) for number in dict.fromkeys(self._named.get(name, ())))

    def node(self, number: int) -> tuple[Metadatum, ...]:
        """Return the operands of a node; empty for other metadata."""
        record = self._record(number)
        if not isinstance(record, Record) or record.code not in _NODES:
            return ()
        return tuple(self._resolve(operand - 1) if operand else None for operand in record.values)

    def flag(self, name: str) -> Metadatum:
        """Return the value of a module flag, None if the flag is absent."""
        for operands in self.named("llvm.module.flags"):
            if len(operands) == 3 and operands[1] == name:  # noqa: PLR2004 (behaviour, name, value)
                return operands[2]
        return None

    def _resolve(self, number: int) -> Metadatum:
        record = self._record(number)
        if isinstance(record, str):
            return record
        if record is not None and record.code == MetadataCode.STRING_OLD:
            return record.string()
        if record is None or record.code != MetadataCode.VALUE:
            return NodeNumber(number)
        value = record.operand(1, "value")
        integer = self._constants.integer(value)
        return self._constants.symbol(value) if integer is None else integer

    def _record(self, number: int) -> Record | str | None:
        place = bisect_right(self._segments, number, key=lambda segment: segment.begin) - 1
        if place < 0:
            return None
        found = self._segments[place].get(number)
        if isinstance(found, Record):
            self._left -= found.count + 1
            if self._left < 0:
                reason = "the metadata take more to read than there is: nodes overlap or repeat"
                raise found.malformed(reason)
        return found


class _Segment:
    """The metadata of one block: positions and named lists."""

    __slots__ = ("_places", "_reader", "_strings", "begin", "named")

    def __init__(self, reader: BlockReader, begin: int) -> None:
        self.begin = begin
        self.named: dict[str, tuple[int, ...]] = {}
        self._reader = reader
        self._strings: _Strings | None = None
        self._places = array("Q")
        name = ""
        for record in reader.records():
            if record.code == MetadataCode.NAME:
                name = record.string()
            elif record.code == MetadataCode.NAMED_NODE:
                self.named[name] = tuple(record.values)
            elif record.code == MetadataCode.STRINGS:
                self._strings = _Strings(record)
            elif record.code == MetadataCode.INDEX_OFFSET:
                self._follow_index(reader, record)
            elif record.code not in UNNUMBERED_METADATA:
                self._places.append(record.position)

    @property
    def end(self) -> int:
        """Return the ID after the last one of this block."""
        return self.begin + len(self._strings or ()) + len(self._places)

    def get(self, number: int) -> Record | str | None:
        """Return the string or the record with an ID, None if there is none."""
        place = number - self.begin
        if self._strings and place < len(self._strings):
            return self._strings[place]
        place -= len(self._strings or ())
        if place >= len(self._places):
            return None
        self._reader.position = self._places[place]
        record = self._reader.next_entry()
        return record if isinstance(record, Record) else None

    def _follow_index(self, reader: BlockReader, record: Record) -> None:
        """Read the positions of all nodes from the index, and continue after the index."""
        begin = reader.position
        low, high = record.operand(0, "offset"), record.operand(1, "offset, upper half")
        reader.position = begin + low + (high << 32)
        index = reader.next_entry() if reader.position <= reader.block.end else None
        if not isinstance(index, Record) or index.code != MetadataCode.INDEX:
            reason = "there is no index where it says"
            raise record.malformed(reason)
        place = begin
        for step in index.values:
            place += step
            if place > index.position:
                reason = f"a node at bit {place}"
                raise index.malformed(reason)
            self._places.append(place)


class _Strings:
    """The content of a METADATA_STRINGS record. These strings precede the nodes and have the first IDs."""

    __slots__ = ("_ends", "_text")

    def __init__(self, record: Record) -> None:
        """Read a record [count, offset of the characters, blob of VBR6 lengths followed by the characters]."""
        count, offset = record.operand(0, "count"), record.operand(1, "offset")
        content = record.text(2)
        end = vbr6_end(content, 0, 8 * min(offset, len(content)), count)
        if end is None:
            reason = f"the lengths of {count} strings do not fit in {offset} bytes"
            raise record.malformed(reason)
        self._text = content[offset:]
        self._ends = array("Q", accumulate(vbr6_numbers(content, 0, end), initial=0))
        if self._ends[-1] > len(self._text):
            reason = f"the strings take {self._ends[-1]} of {len(self._text)} bytes"
            raise record.malformed(reason)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        text = self._text[self._ends[number] : self._ends[number + 1]]
        return text.decode("utf-8", "backslashreplace")


def function_attachments(
    module: BitcodeModule,
    metadata: MetadataTable,
    kind: str,
    is_wanted: Callable[[BitcodeFunction], bool],
) -> dict[str, tuple[Metadatum, ...]]:
    """Return, by name of each selected function, the operands of its attached node of a kind.

    The bodies of other functions are not read.
    """
    number = _kind_number(module, kind)
    if number is None:
        return {}
    found = {}
    defined = (function for function in module.functions if not function.is_declaration)
    for function, body in zip(defined, module.content.bodies, strict=False):
        if not is_wanted(function):
            continue
        attached = _attached(BlockReader(module.content.stream, body), metadata, number)
        if attached:
            found[function.name] = attached
    return found


def _kind_number(module: BitcodeModule, kind: str) -> int | None:
    for block in module.content.metadata_kinds:
        for record in BlockReader(module.content.stream, block).records():
            if record.code == MetadataCode.KIND and record.string(1) == kind:
                return record.operand(0, "kind")
    return None


def _attached(body: BlockReader, metadata: MetadataTable, kind: int) -> tuple[Metadatum, ...]:
    for entry in body:
        if not isinstance(entry, Block):
            continue
        reader = BlockReader(body.stream, entry)
        if entry.number == BlockId.METADATA:
            metadata = metadata.within(reader)
        elif entry.number == BlockId.METADATA_ATTACHMENT:
            for record in reader.records():
                # An attachment of an instruction has an odd count: the instruction ID precedes the pairs.
                pairs = record.values if record.count % 2 == 0 else ()
                if record.code == MetadataCode.ATTACHMENT and kind in pairs[::2]:
                    return metadata.node(pairs[pairs[::2].index(kind) * 2 + 1])
    return ()
