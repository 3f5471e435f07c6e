"""What the metadata of a bitcode module say of it: named lists, module flags, attachments."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from mlir_offload.toolchain.bit_array import vbr6_end, vbr6_numbers
from mlir_offload.toolchain.bitcode import BitcodeModule
from mlir_offload.toolchain.bitcode_code import UNNUMBERED_METADATA, BlockId, MetadataCode
from mlir_offload.toolchain.bitcode_constant import ConstantTable
from mlir_offload.toolchain.bitcode_global import Symbol
from mlir_offload.toolchain.bitstream import Block, BlockReader, Record

_NODES = frozenset({MetadataCode.NODE, MetadataCode.DISTINCT_NODE})


@dataclass(frozen=True, slots=True)
class NodeNumber:
    """A metadatum that is neither text nor a constant: mostly another node."""

    number: int


Metadatum = str | int | Symbol | NodeNumber | None


class MetadataTable:
    """The metadata of a module. Nodes are decoded when they are asked for, where the file has an index."""

    __slots__ = ("_constants", "_left", "_module", "_named", "_places", "_reader", "_strings")

    def __init__(self, module: BitcodeModule, constants: ConstantTable) -> None:
        """Find the nodes, and read the named lists. Raises VerificationError where they are malformed."""
        self._module = module
        self._constants = constants
        self._named: dict[str, tuple[int, ...]] = {}
        self._strings: _Strings | None = None
        self._places = array("Q")
        # Places that an index names may overlap; together they hold no more than there is.
        self._left = module.content.stream.size
        self._reader: BlockReader | None = None
        for block in module.content.metadata:
            self._reader = BlockReader(module.content.stream, block)
            self._pass_over(self._reader)

    def named(self, name: str) -> Iterator[tuple[Metadatum, ...]]:
        """Return the operands of each node in a named list, each node once."""
        return (self.node(number) for number in dict.fromkeys(self._named.get(name, ())))

    def node(self, number: int) -> tuple[Metadatum, ...]:
        """Return the operands of a node, none where it is something else."""
        record = self._record(number)
        if record is None or record.code not in _NODES:
            return ()
        return tuple(self._resolve(operand - 1) if operand else None for operand in record.values)

    def flag(self, name: str) -> Metadatum:
        """Return the value of a module flag, None where there is none of that name."""
        for operands in self.named("llvm.module.flags"):
            if len(operands) == 3 and operands[1] == name:  # noqa: PLR2004 (behaviour, name, value)
                return operands[2]
        return None

    def _resolve(self, number: int) -> Metadatum:
        if self._strings and number < len(self._strings):
            return self._strings[number]
        record = self._record(number)
        if record is not None and record.code == MetadataCode.STRING_OLD:
            return record.string()
        if record is None or record.code != MetadataCode.VALUE:
            return NodeNumber(number)
        value = record.operand(1, "value")
        integer = self._constants.integer(value)
        return self._constants.symbol(value) if integer is None else integer

    def _record(self, number: int) -> Record | None:
        place = number - (len(self._strings) if self._strings else 0)
        if self._reader is None or not 0 <= place < len(self._places):
            return None
        self._reader.position = self._places[place]
        record = next(self._reader, None)
        if not isinstance(record, Record):
            return None
        self._left -= record.count + 1
        if self._left < 0:
            reason = "its nodes overlap"
            raise record.malformed(reason)
        return record

    def _pass_over(self, reader: BlockReader) -> None:
        name = ""
        for record in reader.records():
            if record.code == MetadataCode.NAME:
                name = record.string()
            elif record.code == MetadataCode.NAMED_NODE:
                self._named[name] = tuple(record.values)
            elif record.code == MetadataCode.STRINGS:
                self._strings = _Strings(record)
            elif record.code == MetadataCode.INDEX_OFFSET:
                self._follow_index(reader, record)
            elif record.code not in UNNUMBERED_METADATA:
                self._places.append(record.position)

    def _follow_index(self, reader: BlockReader, record: Record) -> None:
        """Take the places of all nodes from the index, and go on behind it."""
        begin = reader.position
        low, high = record.operand(0, "offset"), record.operand(1, "offset, upper half")
        reader.position = begin + low + (high << 32)
        index = next(reader, None) if reader.position <= reader.block.end else None
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
    """The strings that stand together before the nodes, and have the first numbers."""

    __slots__ = ("_ends", "_text")

    def __init__(self, record: Record) -> None:
        """Read [count, offset of the characters, lengths as VBR6 and then the characters]."""
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


def kernel_attachments(module: BitcodeModule, kind: str) -> dict[str, int]:
    """Return the node that each function with a body has attached under a kind of metadata."""
    number = _kind_number(module, kind)
    if number is None:
        return {}
    found = {}
    defined = (function for function in module.functions if not function.is_declaration)
    for function, body in zip(defined, module.content.bodies, strict=False):
        node = _attached(BlockReader(module.content.stream, body), number)
        if node is not None:
            found[function.name] = node
    return found


def _kind_number(module: BitcodeModule, kind: str) -> int | None:
    for block in module.content.metadata_kinds:
        for record in BlockReader(module.content.stream, block).records():
            if record.code == MetadataCode.KIND and record.string(1) == kind:
                return record.operand(0, "kind")
    return None


def _attached(body: BlockReader, kind: int) -> int | None:
    for entry in body:
        if not isinstance(entry, Block) or entry.number != BlockId.METADATA_ATTACHMENT:
            continue
        for record in BlockReader(body.stream, entry).records():
            # One for an instruction has the number of that in front of its pairs.
            if record.code == MetadataCode.ATTACHMENT and record.count % 2 == 0:
                pairs = dict(zip(record.values[::2], record.values[1::2], strict=True))
                if kind in pairs:
                    return pairs[kind]
    return None
