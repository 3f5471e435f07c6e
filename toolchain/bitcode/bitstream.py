"""LLVM's bitstream: blocks of records, packed by abbreviations (llvm.org/docs/BitCodeFormat.html).

Nothing here knows what a record means. Blocks are entered, and long arrays decoded, only where the
caller asks for it. Positions are in bits from the begin of the stream. The work is linear in its size:
what an abbreviation gives for nothing (literals, fields of no width) may not outnumber the bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

from mlir_offload.toolchain.bitcode.abbrev import Abbreviation, Encoding, Field, read_abbreviation
from mlir_offload.toolchain.bitcode.bit_array import (
    VBR_BYTES,
    bits,
    char6,
    fixed_numbers,
    vbr,
    vbr6_end,
    vbr6_few,
    vbr6_numbers,
    vbr_at,
    vbr_numbers,
)
from mlir_offload.toolchain.byte_view import ByteView, memory_view
from mlir_offload.toolchain.errors import VerificationError

BLOCK_INFO = 0
_END_BLOCK, _ENTER_BLOCK, _DEFINE_ABBREVIATION, _UNABBREVIATED = range(4)
_SET_BLOCK = 1
_WORD_BYTES = 2 * VBR_BYTES
_MIN_WIDTH, _MAX_WIDTH = 2, 32
_MAX_FIELDS = 4096  # of all abbreviations of a block; LLVM's own blocks stay below 200
_USUAL_CHUNK = 6
_USUAL_INFO_BYTES = 1 << 12
_SHORT = 64
_ENTRY_BYTES, _FEW_ENTRIES = 4, 4096
_CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_LITERAL, _FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = Encoding
_BYTES: Field = (_FIXED, 8)
_USUAL_ELEMENT: Field = (_VBR, _USUAL_CHUNK)


class Block(Struct, frozen=True):
    """Where the content of a block is, and the width of its abbreviation numbers.

    `inherited` counts the abbreviations of BLOCKINFO blocks before it; later ones do not hold in it.
    """

    number: int
    begin: int
    end: int
    width: int
    inherited: int = 0


class _Array(Struct, frozen=True):
    """The place of a long array that nobody has looked at yet."""

    position: int
    end: int
    count: int
    element: Field


class Record:
    """One record; what it represents is `code`, numbered for each kind of block.

    Its constructor takes the code out of the scalars.
    """

    __slots__ = ("_array", "_scalars", "_stream", "code", "position")

    def __init__(
        self, stream: BitStream, position: int, scalars: list[int], array: _Array | None
    ) -> None:
        """Take the code from the scalars; the array is decoded when it is asked for."""
        self.code = scalars.pop(0)
        self.position = position
        self._stream = stream
        self._scalars = scalars
        self._array = array

    @property
    def count(self) -> int:
        """Return the number of operands, without decoding them."""
        return len(self._scalars) + (self._array.count if self._array else 0)

    @property
    def values(self) -> Sequence[int]:
        """Return the operands, of a long array of bytes as bytes."""
        if self._array is None:
            return self._scalars
        decoded = self._stream.decode(self._array)
        return [*self._scalars, *decoded] if self._scalars else decoded

    def operand(self, place: int, field: str) -> int:
        """Return one operand. Raises VerificationError naming `field` where there is none."""
        if place < len(self._scalars):
            return self._scalars[place]
        if place < self.count:
            return self.values[place]
        reason = f"it has no operand {place}, the {field}"
        raise self.malformed(reason)

    def text(self, begin: int = 0) -> bytes:
        """Return the operands from `begin` on as bytes. Raises VerificationError where they are not."""
        scalars = self._scalars[begin:]
        decoded = self._stream.decode(self._array) if self._array else b""
        if begin > len(self._scalars):
            decoded = decoded[begin - len(self._scalars) :]
        try:
            tail = decoded if isinstance(decoded, bytes) else bytes(iter(decoded))
            return bytes(scalars) + tail if scalars else tail
        except ValueError as error:
            reason = "a character of it is not a byte"
            raise self.malformed(reason) from error

    def string(self, begin: int = 0) -> str:
        """Return the operands from `begin` on as text."""
        return self.text(begin).decode("utf-8", "backslashreplace")

    def keep(self) -> None:
        """Count this record among what is kept in memory. Raises VerificationError as the stream."""
        self._stream.keep(self.position)

    def malformed(self, reason: str) -> VerificationError:
        """Return the error that names this record and what is wrong with it."""
        return self._stream.malformed(self.position, f"record {self.code}", reason)


class _Budget(Struct):
    """What a stream may still give: its size bounds the work and memory of reading it."""

    free_operands: int
    entries: int


class BitStream:
    """The bits of a view, and the abbreviations that its BLOCKINFO blocks define."""

    __slots__ = ("_budget", "data", "shared", "size", "view")

    def __init__(self, view: ByteView) -> None:
        """Read the view as a whole: fields lie across bytes."""
        self.view = view
        self.data = view.whole()
        self.size = 8 * len(self.data)
        self.shared: dict[int, list[Abbreviation]] = {}
        self._budget = _Budget(self.size, len(self.data) // _ENTRY_BYTES + _FEW_ENTRIES)

    def anew(self) -> BitStream:
        """Return the same bits without what BLOCKINFO said: each module has its own."""
        other = BitStream.__new__(BitStream)
        other.view, other.data, other.size = self.view, self.data, self.size
        other.shared, other._budget = {}, self._budget  # noqa: SLF001 (its own class)
        return other

    def spend(self, count: int, position: int) -> None:
        """Count operands that take no bits. Raises VerificationError where there are too many."""
        self._budget.free_operands -= count
        if self._budget.free_operands < 0:
            reason = "abbreviations give more operands than the stream has bits"
            raise self.malformed(position, "record", reason)

    def keep(self, position: int) -> None:
        """Count what a reader keeps in memory. Raises VerificationError where that is too much.

        Abbreviations can make a type or a symbol as small as three bits; LLVM's take far more.
        """
        self._budget.entries -= 1
        if self._budget.entries < 0:
            raise self.malformed(position, "module", "more entries than its size can hold")

    def decode(self, place: _Array) -> Sequence[int]:
        """Return the numbers of an array. Raises VerificationError where one is too large."""
        (encoding, width), data = place.element, self.data
        if encoding is _CHAR6:
            return char6(data, place.position, place.count)
        if encoding is _FIXED:
            return fixed_numbers(data, place.position, place.count, width)
        try:
            if width == _USUAL_CHUNK:
                return vbr6_numbers(data, place.position, place.end)
            return vbr_numbers(data, place.position, place.end, place.count, width)[0]
        except ValueError as error:
            raise self.malformed(place.position, "record", str(error)) from error

    def malformed(self, position: int, field: str, reason: str) -> VerificationError:
        """Return the error that names a place."""
        return self.view.malformed(position >> 3, f"{field} (bit {position & 7})", reason)


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
        begin = self.position
        try:
            entry = self._next()
        except ValueError as error:
            raise self.malformed(begin, str(error)) from error
        if entry is None:
            raise StopIteration
        if self.position <= self._end:
            return entry
        raise self.malformed(begin, "what is here leaves it")

    def _next(self) -> Record | Block | None:
        data, width = self._data, self._width
        while True:
            begin = self.position
            self.position = position = begin + width
            if position > self._end:
                raise self.malformed(begin, "it has no end")
            at = begin >> 3
            word = int.from_bytes(data[at : at + 5], "little") >> (begin & 7)
            number = word & ((1 << width) - 1)
            if number > _UNABBREVIATED:
                return self._abbreviated(begin, number)
            if number == _UNABBREVIATED:
                return self._unabbreviated(begin)
            if number == _ENTER_BLOCK:
                return self._inner_block()
            if number == _END_BLOCK:
                self._check_end()
                return None
            self._define(begin)

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
        word = int.from_bytes(self._data[at : at + _WORD_BYTES], "little") >> (self.position & 7)
        code, used = vbr(word, _USUAL_CHUNK)
        count, more = vbr(word >> used, _USUAL_CHUNK)
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
            count, place = vbr_at(self._data, self.position, _USUAL_CHUNK)
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
                raw = self._data[at : at + _WORD_BYTES]
                word = int.from_bytes(raw, "little") >> (self.position & 7)
                left = 8 * _WORD_BYTES - (self.position & 7)
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
    ) -> _Array | None:
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
        place = _Array(position, end, count, element)
        if count > _SHORT:
            return place
        scalars += self.stream.decode(place)
        return None

    def _vbr_end(self, position: int, count: int, width: int) -> int:
        """Return where an array ends, or a bit behind the block."""
        if position + count * width > self._end:
            return self._end + 1
        if width == _USUAL_CHUNK:
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


def block_at(stream: BitStream, position: int, limit: int) -> Block:
    """Return the block whose number and size stand at a position, behind the abbreviation number.

    Raises VerificationError where it would not end before `limit`.
    """
    at = position >> 3
    word = int.from_bytes(stream.data[at : at + _WORD_BYTES], "little") >> (position & 7)
    try:
        number, used = vbr(word, 8)
        width, more = vbr(word >> used, 4)
    except ValueError as error:
        raise stream.malformed(position, "block", str(error)) from error
    begin = -(-(position + used + more) // 32) * 32 + 32
    size = stream.data[(begin >> 3) - 4 : begin >> 3]
    end = begin + 32 * int.from_bytes(size, "little")
    if end <= limit and _MIN_WIDTH <= width <= _MAX_WIDTH:
        return Block(number, begin, end, width, len(stream.shared.get(number, ())))
    reason = f"it has abbreviation numbers of {width} bits"
    if end > limit:
        reason = f"its {(end - begin) // 8} bytes do not fit in what is around it"
    raise stream.malformed(position, f"block {number}", reason)


def outer_block(stream: BitStream, position: int) -> Block:
    """Return the block that begins at a position, outside of all others.

    Raises VerificationError where none does.
    """
    if bits(stream.data, position, _MIN_WIDTH) != _ENTER_BLOCK:
        raise stream.malformed(position, "stream", "no block begins here")
    return block_at(stream, position + _MIN_WIDTH, stream.size)
