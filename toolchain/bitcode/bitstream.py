"""LLVM's bitstream: blocks of records, packed by abbreviations (llvm.org/docs/BitCodeFormat.html).

Nothing here knows what a record means. Blocks are entered, and long arrays decoded, only where the
caller asks for it. Positions are in bits from the begin of the stream. The work is linear in its size:
what an abbreviation gives for nothing (literals, fields of no width) may not outnumber the bits.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from mlir_offload.toolchain.bitcode.abbrev import Abbreviation, Encoding, Field
from mlir_offload.toolchain.bitcode.bit_array import (
    char6,
    fixed_numbers,
    vbr6_numbers,
    vbr_at,
    vbr_numbers,
)
from mlir_offload.toolchain.byte_view import ByteView
from mlir_offload.toolchain.errors import VerificationError

BLOCK_INFO = 0
ENTER_BLOCK = 1
USUAL_CHUNK = 6
WORD = struct.Struct("<Q")
WORD_BITS = 57
"""The bits that a word has at least from any bit of its first byte on."""
_PADDING = bytes(WORD.size)
_SIZE = struct.Struct("<I")
_MIN_WIDTH, _MAX_WIDTH = 2, 32
# Of a block's number in chunks of 8 bits, or of the width behind it in chunks of 4, there is more.
_CONTINUED = 0x880
# An array that is kept once it is decoded.
_SHORT = 64
_ENTRY_BYTES, _FEW_ENTRIES = 4, 4096
_FIXED, _CHAR6 = Encoding.FIXED, Encoding.CHAR6


class Block(Struct, frozen=True):
    """Where the content of a block is, and the width of its abbreviation numbers.

    `inherited` counts the abbreviations of BLOCKINFO blocks before it; later ones do not hold in it.
    """

    number: int
    begin: int
    end: int
    width: int
    inherited: int = 0


class LongArray(Struct, frozen=True):
    """The place of a long array that nobody has looked at yet."""

    position: int
    end: int
    count: int
    element: Field


class Record(Struct, eq=False):
    """One record; what it represents is `code`, numbered for each kind of block.

    Its array is decoded when it is asked for.
    """

    code: int
    position: int
    _stream: BitStream
    _scalars: list[int]
    _array: LongArray | None = None

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
        if self._array.count > _SHORT:
            return [*self._scalars, *decoded] if self._scalars else decoded
        self._scalars, self._array = [*self._scalars, *decoded], None
        return self._scalars

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
        # Words are taken from any byte of it.
        self.data = view.whole() + _PADDING
        self.size = 8 * view.size
        self.shared: dict[int, list[Abbreviation]] = {}
        self._budget = _Budget(self.size, view.size // _ENTRY_BYTES + _FEW_ENTRIES)

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

    def decode(self, place: LongArray) -> Sequence[int]:
        """Return the numbers of an array. Raises VerificationError where one is too large."""
        (encoding, width), data = place.element, self.data
        if encoding is _CHAR6:
            return char6(data, place.position, place.count)
        if encoding is _FIXED:
            return fixed_numbers(data, place.position, place.count, width)
        try:
            if width == USUAL_CHUNK:
                return vbr6_numbers(data, place.position, place.end)
            return vbr_numbers(data, place.position, place.end, place.count, width)[0]
        except ValueError as error:
            raise self.malformed(place.position, "record", str(error)) from error

    def malformed(self, position: int, field: str, reason: str) -> VerificationError:
        """Return the error that names a place."""
        return self.view.malformed(position >> 3, f"{field} (bit {position & 7})", reason)


def block_at(stream: BitStream, position: int, limit: int) -> Block:
    """Return the block whose number and size stand at a position, behind the abbreviation number.

    Raises VerificationError where it would not end before `limit`.
    """
    data = stream.data
    word = WORD.unpack_from(data, position >> 3)[0] >> (position & 7)
    if word & _CONTINUED:
        try:
            number, behind = vbr_at(data, position, 8)
            width, behind = vbr_at(data, behind, 4)
        except ValueError as error:
            raise stream.malformed(position, "block", str(error)) from error
    else:
        number, width, behind = word & 0x7F, word >> 8 & 7, position + 12
    begin = (behind + 31 & ~31) + 32
    size = _SIZE.unpack_from(data, (begin >> 3) - 4)[0] if begin <= stream.size else 0
    end = begin + 32 * size
    if end <= limit and _MIN_WIDTH <= width <= _MAX_WIDTH:
        return Block(number, begin, end, width, len(stream.shared.get(number, ())))
    reason = f"it has abbreviation numbers of {width} bits"
    if end > limit:
        reason = f"its {(end - begin) // 8} bytes do not fit in what is around it"
    raise stream.malformed(position, f"block {number}", reason)


def outer_block(stream: BitStream, position: int) -> Block:
    """Return the block that begins at a position, a whole byte, outside of all others.

    Raises VerificationError where none does.
    """
    if stream.data[position >> 3] & (1 << _MIN_WIDTH) - 1 != ENTER_BLOCK:
        raise stream.malformed(position, "stream", "no block begins here")
    return block_at(stream, position + _MIN_WIDTH, stream.size)
