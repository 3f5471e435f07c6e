"""The entries of a block of a bitstream: records, inner blocks, and the abbreviations that BLOCKINFO defines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from mlir_offload.toolchain.bitcode.abbrev import Abbreviation, Encoding, Field, read_abbreviation
from mlir_offload.toolchain.bitcode.bit_array import (
    VBR_BYTES,
    vbr,
    vbr6_end,
    vbr6_few,
    vbr_at,
    vbr_numbers,
)
from mlir_offload.toolchain.bitcode.bitstream import (
    BLOCK_INFO,
    ENTER_BLOCK,
    USUAL_CHUNK,
    WORD_BYTES,
    BitStream,
    Block,
    LongArray,
    Record,
    block_at,
)
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError

_END_BLOCK, _UNABBREVIATED = 0, 3
_SET_BLOCK = 1
_MAX_FIELDS = 4096  # of all abbreviations of a block; LLVM's own blocks stay below 200
_USUAL_INFO_BYTES = 1 << 12
_SHORT = 64
_CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_LITERAL, _FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = Encoding
_BYTES: Field = (_FIXED, 8)
_USUAL_ELEMENT: Field = (_VBR, USUAL_CHUNK)


class BlockReader(Iterator[Record | Block]):
    """The entries of one block in order: records, and inner blocks, which are passed over."""

    __slots__ = ("_abbreviations", "_data", "_end", "_width", "block", "position", "stream")

    def __init__(self, stream: BitStream, block: Block) -> None:
        """Begin at the first entry; `position` may be set to that of another one."""
        self.stream = stream
        self.block = block
        self.position = block.begin
        self._data = stream.data
        self._end = block.end
        self._width = block.width
        self._abbreviations = stream.shared.get(block.number, [])[: block.inherited]

    @property
    def definitions(self) -> tuple[Abbreviation, ...]:
        """Return the abbreviations that hold from here on."""
        return tuple(self._abbreviations)

    def resume(self, position: int, definitions: Sequence[Abbreviation]) -> None:
        """Go on at a position at which these abbreviations hold."""
        self.position, self._abbreviations = position, list(definitions)

    def records(self) -> Iterator[Record]:
        """Return the records alone."""
        return (entry for entry in self if isinstance(entry, Record))

    def __next__(self) -> Record | Block:
        """Return the next entry. Raises VerificationError where there should be one."""
        first, data, width = self.position, self._data, self._width
        try:
            while True:
                begin = self.position
                self.position = begin + width
                if self.position > self._end:
                    raise self.malformed(begin, "it has no end")
                at = begin >> 3
                word = int.from_bytes(data[at : at + 5], "little") >> (begin & 7)
                number = word & ((1 << width) - 1)
                if number == ENTER_BLOCK:
                    return self._inner_block()
                if number == _END_BLOCK:
                    break
                if number >= _UNABBREVIATED:
                    return self._record(begin, number)
                self._define(begin)
        except ValueError as error:
            raise self.malformed(first, str(error)) from error
        self._check_end()
        raise StopIteration

    def _record(self, begin: int, number: int) -> Record:
        if number == _UNABBREVIATED:
            record = self._unabbreviated(begin)
        else:
            record = self._abbreviated(begin, number)
        if self.position <= self._end:
            return record
        raise self.malformed(begin, "what is here leaves it")

    def _check_end(self) -> None:
        if -(-self.position // 32) * 32 != self._end:
            raise self.malformed(self.position, f"it ends here, not at bit {self._end}")

    def _inner_block(self) -> Block:
        block = block_at(self.stream, self.position, self._end)
        self.position = block.end
        if block.number == BLOCK_INFO:
            _read_block_info(self.stream, block)
        return block

    def _unabbreviated(self, begin: int) -> Record:
        at = self.position >> 3
        word = int.from_bytes(self._data[at : at + WORD_BYTES], "little") >> (self.position & 7)
        code, used = vbr(word, USUAL_CHUNK)
        count, more = vbr(word >> used, USUAL_CHUNK)
        scalars = [code]
        place = self.position + used + more
        array = self._array(begin, _USUAL_ELEMENT, count, place, scalars)
        return Record(self.stream, begin, scalars, array)

    def _abbreviated(self, begin: int, number: int) -> Record:
        if number - _UNABBREVIATED > len(self._abbreviations):
            raise self.malformed(begin, f"abbreviation {number} is not defined")
        abbreviation = self._abbreviations[number - _UNABBREVIATED - 1]
        if abbreviation.problem:
            raise self.malformed(begin, abbreviation.problem)
        if abbreviation.free_count:
            self.stream.spend(abbreviation.free_count, begin)
        scalars = self._scalars(abbreviation.scalars)
        array = None
        if abbreviation.element is not None:
            count, place = vbr_at(self._data, self.position, USUAL_CHUNK)
            array = self._array(begin, abbreviation.element, count, place, scalars)
        return Record(self.stream, begin, scalars, array)

    def _scalars(self, fields: tuple[Field, ...]) -> list[int]:
        scalars: list[int] = []
        word = left = 0
        for encoding, width in fields:
            if encoding is _LITERAL:
                scalars.append(width)
                continue
            if left < 8 * VBR_BYTES:
                at = self.position >> 3
                raw = self._data[at : at + WORD_BYTES]
                word = int.from_bytes(raw, "little") >> (self.position & 7)
                left = 8 * WORD_BYTES - (self.position & 7)
            used = width
            if encoding is _VBR:
                value, used = vbr(word, width)
            else:
                value = word & ((1 << width) - 1)
            scalars.append(_CHARACTERS[value] if encoding is _CHAR6 else value)
            word >>= used
            left -= used
            self.position += used
        return scalars

    def _array(
        self, begin: int, element: Field, count: int, position: int, scalars: list[int]
    ) -> LongArray | None:
        """Append a short array to the scalars, or return the place of a long one."""
        encoding, width = element
        if element == _USUAL_ELEMENT and count <= _SHORT:
            numbers, self.position = vbr6_few(self._data, position, count)
            scalars += numbers
            return None
        if encoding is _BLOB:
            position = -(-position // 32) * 32
            end, element = position + -(-count // 4) * 32, _BYTES
        elif encoding is _VBR:
            end = self._vbr_end(position, count, width)
        else:
            end = position + count * width
        if end > self._end:
            raise self.malformed(begin, f"{count} operands do not fit in it")
        self.position = end
        place = LongArray(position, end, count, element)
        if count > _SHORT:
            return place
        scalars += self.stream.decode(place)
        return None

    def _vbr_end(self, position: int, count: int, width: int) -> int:
        """Return where an array ends, or a bit behind the block."""
        if position + count * width > self._end:
            return self._end + 1
        if width == USUAL_CHUNK:
            return vbr6_end(self._data, position, self._end, count) or self._end + 1
        numbers, end = vbr_numbers(self._data, position, self._end, count, width)
        return end if len(numbers) == count else self._end + 1

    def _define(self, begin: int) -> None:
        abbreviation, self.position = read_abbreviation(self._data, self.position, self._end)
        known = self._definitions(begin)
        known.append(abbreviation)
        if self.position > self._end or sum(len(one.scalars) for one in known) > _MAX_FIELDS:
            raise self.malformed(begin, "too long an abbreviation")

    def _definitions(self, _begin: int) -> list[Abbreviation]:
        return self._abbreviations

    def malformed(self, position: int, reason: str) -> VerificationError:
        """Return the error that names this block, a place in it and what is wrong."""
        return self.stream.malformed(position, f"block {self.block.number}", reason)


def records_of(stream: BitStream, blocks: Iterable[Block]) -> Iterator[Record]:
    """Return the records of some blocks, one after the other."""
    return (record for block in blocks for record in BlockReader(stream, block).records())


class _BlockInfoReader(BlockReader):
    """A BLOCKINFO block: its abbreviations are for the blocks whose number it names."""

    __slots__ = ("described",)

    def __init__(self, stream: BitStream, block: Block) -> None:
        super().__init__(stream, block)
        self.described: int | None = None

    def _definitions(self, begin: int) -> list[Abbreviation]:
        if self.described is None:
            raise self.malformed(begin, "an abbreviation for no block")
        return self.stream.shared.setdefault(self.described, [])


def _read_block_info(stream: BitStream, block: Block) -> None:
    """Take the abbreviations of a BLOCKINFO block; those of one writer are read once for many modules."""
    content = stream.data[block.begin >> 3 : block.end >> 3]
    if not stream.shared and len(content) <= _USUAL_INFO_BYTES:
        with suppress(VerificationError):
            known = _abbreviations_in(content, block.width)
            stream.shared = {number: list(found) for number, found in known}
            return
    _define_for_others(stream, block)


@lru_cache(maxsize=8)
def _abbreviations_in(
    content: bytes, width: int
) -> tuple[tuple[int, tuple[Abbreviation, ...]], ...]:
    stream = BitStream(memory_view(content))
    _define_for_others(stream, Block(BLOCK_INFO, 0, stream.size, width))
    return tuple((number, tuple(found)) for number, found in stream.shared.items())


def _define_for_others(stream: BitStream, block: Block) -> None:
    reader = _BlockInfoReader(stream, block)
    for record in reader.records():
        if record.code == _SET_BLOCK:
            reader.described = record.operand(0, "number of the block")
