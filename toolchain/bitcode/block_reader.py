"""Read the entries of a bitstream block: records, nested blocks, and the abbreviations in BLOCKINFO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from mlir_offload.toolchain.bitcode.abbrev import Abbreviation, Encoding, Field, read_abbreviation
from mlir_offload.toolchain.bitcode.bit_array import (
    vbr6_end,
    vbr6_few,
    vbr_at,
    vbr_numbers,
)
from mlir_offload.toolchain.bitcode.bitstream import (
    BLOCK_INFO,
    ENTER_BLOCK,
    USUAL_CHUNK,
    WORD,
    WORD_BITS,
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
# The limit of fields in all abbreviations of a block. LLVM's writer uses fewer than 200.
_MAX_FIELDS = 4096
# Below this number of abbreviations and fields, the limit is not checked.
_FEW_FIELDS = 16
_USUAL_INFO_BYTES = 1 << 12
_SHORT = 64
_word_at = WORD.unpack_from
# The value bits of a chunk, the size of two numbers of one chunk each, and their continuation bits.
_CHUNK_BITS, _TWO_CHUNKS, _CONTINUED, _TWO_CONTINUED = 0x1F, 2 * USUAL_CHUNK, 0x20, 0x820
_CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_LITERAL, _FIXED, _VBR = Encoding.LITERAL, Encoding.FIXED, Encoding.VBR
_CHAR6, _BLOB = Encoding.CHAR6, Encoding.BLOB
_BYTES: Field = (_FIXED, 8)
_USUAL_ELEMENT: Field = (_VBR, USUAL_CHUNK)


class BlockReader(Iterable[Record | Block]):
    """The entries of one block in order: records and nested blocks, whose content is skipped."""

    __slots__ = ("_abbreviations", "_data", "_end", "_width", "block", "position", "stream")

    def __init__(self, stream: BitStream, block: Block) -> None:
        """Begin at the first entry. `position` may be set to the position of another entry."""
        self.stream = stream
        self.block = block
        self.position = block.begin
        self._data = stream.data
        self._end = block.end
        self._width = block.width
        self._abbreviations = list(stream.shared.get(block.number, ())[: block.inherited])

    @property
    def definitions(self) -> tuple[Abbreviation, ...]:
        """Return the abbreviations that are defined at the current position."""
        return tuple(self._abbreviations)

    def resume(self, position: int, definitions: Sequence[Abbreviation]) -> None:
        """Continue at a position with the abbreviations that are defined there."""
        self.position, self._abbreviations = position, list(definitions)

    def records(self) -> Iterator[Record]:
        """Return only the records."""
        return (entry for entry in self if isinstance(entry, Record))

    def __iter__(self) -> Iterator[Record | Block]:
        """Yield the entries from `position` on. Raises VerificationError if an entry is malformed."""
        # Reading bitcode spends most of its time here, so the bytes are converted once per entry.
        data, width, low, word_at = self._data, self._width, (1 << self._width) - 1, _word_at
        while True:
            begin = self.position
            self.position = begin + width
            if self.position > self._end:
                raise self.malformed(begin, "it has no end")
            word = word_at(data, begin >> 3)[0] >> (begin & 7)
            number = word & low
            if number == _END_BLOCK:
                self._check_end()
                return
            if number == ENTER_BLOCK:
                yield self._nested(word >> width)
                continue
            record = None
            try:
                if number > _UNABBREVIATED:
                    record = self._abbreviated(begin, number, word >> width)
                elif number == _UNABBREVIATED:
                    record = self._unabbreviated(begin, word >> width)
                else:
                    self._define(begin)
            except ValueError as error:
                raise self.malformed(begin, str(error)) from error
            if self.position > self._end:
                raise self.malformed(begin, "what is here leaves it")
            if record is not None:
                yield record

    def next_entry(self) -> Record | Block | None:
        """Return the entry at `position`, None at the end. Raises VerificationError if it is malformed."""
        return next(iter(self), None)

    def _nested(self, word: int) -> Block:
        block = block_at(self.stream, self.position, self._end, word)
        self.position = block.end
        if block.number == BLOCK_INFO:
            _read_block_info(self.stream, block)
        return block

    def _check_end(self) -> None:
        if -(-self.position // 32) * 32 != self._end:
            raise self.malformed(self.position, f"it ends here, not at bit {self._end}")

    def _unabbreviated(self, begin: int, word: int) -> Record:
        """Return the record at the position; `word` has its first bits."""
        if word & _TWO_CONTINUED:
            code, position = vbr_at(self._data, self.position, USUAL_CHUNK)
            count, position = vbr_at(self._data, position, USUAL_CHUNK)
        else:
            code, count = word & _CHUNK_BITS, word >> USUAL_CHUNK & _CHUNK_BITS
            position = self.position + _TWO_CHUNKS
        if count <= _SHORT:
            scalars, self.position = vbr6_few(self._data, position, count)
            return Record(code, begin, self.stream, scalars)
        scalars = []
        array = self._array(begin, _USUAL_ELEMENT, count, position, scalars)
        return Record(code, begin, self.stream, scalars, array)

    def _abbreviated(self, begin: int, number: int, word: int) -> Record:
        if number - _UNABBREVIATED > len(self._abbreviations):
            raise self.malformed(begin, f"abbreviation {number} is not defined")
        abbreviation = self._abbreviations[number - _UNABBREVIATED - 1]
        if abbreviation.problem:
            raise self.malformed(begin, abbreviation.problem)
        if abbreviation.free_count:
            self.stream.spend(abbreviation.free_count, begin)
        steps, used = abbreviation.steps, abbreviation.bits
        if steps and not word & abbreviation.continued and used <= WORD_BITS - self._width:
            scalars = [word >> shift & mask | literal for shift, mask, literal in steps]
            self.position += used
            word >>= used
        else:
            scalars = self._scalars(abbreviation.scalars, word)
            used = WORD_BITS
        if abbreviation.element is None:
            return Record(scalars.pop(0), begin, self.stream, scalars)
        if used + USUAL_CHUNK > WORD_BITS - self._width or word & _CONTINUED:
            count, place = vbr_at(self._data, self.position, USUAL_CHUNK)
        else:
            count, place = word & _CHUNK_BITS, self.position + USUAL_CHUNK
        array = self._array(begin, abbreviation.element, count, place, scalars)
        return Record(scalars.pop(0), begin, self.stream, scalars, array)

    def _scalars(self, fields: tuple[Field, ...], word: int) -> list[int]:
        scalars: list[int] = []
        position, left = self.position, WORD_BITS - self._width
        for encoding, width in fields:
            if encoding == _LITERAL:
                scalars.append(width)
                continue
            if left < width:
                if position > self._end:
                    raise self.malformed(self.position, "what is here leaves it")
                word, left = _word_at(self._data, position >> 3)[0] >> (position & 7), WORD_BITS
            high = 1 << (width - 1)
            if encoding != _VBR:
                value = word & (2 * high - 1)
            elif word & high:
                value, position = vbr_at(self._data, position, width)
                scalars.append(value)
                left = 0
                continue
            else:
                value = word & (high - 1)
            scalars.append(_CHARACTERS[value] if encoding == _CHAR6 else value)
            word >>= width
            left -= width
            position += width
        self.position = position
        return scalars

    def _array(
        self, begin: int, element: Field, count: int, position: int, scalars: list[int]
    ) -> LongArray | None:
        """Append a short array to the scalars, or return the location of a long one."""
        encoding, width = element
        if element == _USUAL_ELEMENT and count <= _SHORT:
            numbers, self.position = vbr6_few(self._data, position, count)
            scalars += numbers
            return None
        if encoding == _BLOB:
            position = -(-position // 32) * 32
            end, element = position + -(-count // 4) * 32, _BYTES
        elif encoding == _VBR:
            end = self._vbr_end(position, count, width)
        else:
            end = position + count * width
        if end > self._end:
            raise self.malformed(begin, f"{count} operands do not fit in it")
        self.position = end
        return LongArray(position, end, count, element)

    def _vbr_end(self, position: int, count: int, width: int) -> int:
        """Return the end of an array. If the array exceeds the block, return a position after the block."""
        if position + count * width > self._end:
            return self._end + 1
        if width == USUAL_CHUNK:
            return vbr6_end(self._data, position, self._end, count) or self._end + 1
        numbers, end = vbr_numbers(self._data, position, self._end, count, width)
        return end if len(numbers) == count else self._end + 1

    def _define(self, begin: int) -> None:
        abbreviation, self.position = read_abbreviation(self._data, self.position, self._end)
        known = self._add_definition(abbreviation, begin)
        is_unusual = len(known) > _FEW_FIELDS or len(abbreviation.scalars) > _FEW_FIELDS
        if is_unusual and sum(len(one.scalars) for one in known) > _MAX_FIELDS:
            raise self.malformed(begin, "too long an abbreviation")

    def _add_definition(self, new: Abbreviation, _begin: int) -> Sequence[Abbreviation]:
        """Add an abbreviation and return all that it adds to."""
        self._abbreviations.append(new)
        return self._abbreviations

    def malformed(self, position: int, reason: str) -> VerificationError:
        """Return an error with the ID of this block, the bit position and the reason."""
        return self.stream.malformed(position, f"block {self.block.number}", reason)


def records_of(stream: BitStream, blocks: Iterable[Block]) -> Iterator[Record]:
    """Return the records of several blocks in order."""
    return (record for block in blocks for record in BlockReader(stream, block).records())


class _BlockInfoReader(BlockReader):
    """A reader of a BLOCKINFO block, which defines abbreviations for the block IDs that it names."""

    __slots__ = ("described",)

    def __init__(self, stream: BitStream, block: Block) -> None:
        super().__init__(stream, block)
        self.described: int | None = None

    def _add_definition(self, new: Abbreviation, begin: int) -> Sequence[Abbreviation]:
        if self.described is None:
            raise self.malformed(begin, "an abbreviation for no block")
        shared, number = self.stream.shared, self.described
        shared[number] = (*shared.get(number, ()), new)
        return shared[number]


def _read_block_info(stream: BitStream, block: Block) -> None:
    """Add the abbreviations of a BLOCKINFO block to the stream.

    They are cached, because the BLOCKINFO of all modules of one writer is the same.
    """
    content = stream.data[block.begin >> 3 : block.end >> 3]
    if not stream.shared and len(content) <= _USUAL_INFO_BYTES:
        with suppress(VerificationError):
            stream.shared = dict(_abbreviations_in(content, block.width))
            return
    _define_for_others(stream, block)


@lru_cache(maxsize=8)
def _abbreviations_in(content: bytes, width: int) -> Mapping[int, tuple[Abbreviation, ...]]:
    stream = BitStream(memory_view(content))
    _define_for_others(stream, Block(BLOCK_INFO, 0, stream.size, width))
    return stream.shared


def _define_for_others(stream: BitStream, block: Block) -> None:
    reader = _BlockInfoReader(stream, block)
    for record in reader.records():
        if record.code == _SET_BLOCK:
            reader.described = record.operand(0, "number of the block")
