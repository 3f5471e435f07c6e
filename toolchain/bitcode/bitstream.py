"""LLVM's bitstream: blocks of records, encoded by abbreviations (llvm.org/docs/BitCodeFormat.html).

This module does not interpret records. Blocks are entered and long arrays are decoded on demand only.
Positions are in bits from the start of the stream. The work is linear in the size of the stream, because
the operands that take no bits (literals, zero-width fields) must not outnumber the bits.
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
"""The bits of a 64-bit word that remain if reading begins at the last bit of its first byte."""
_PADDING = bytes(WORD.size)
_word_at, _size_at = WORD.unpack_from, struct.Struct("<I").unpack_from
_MIN_WIDTH, _MAX_WIDTH = 2, 32
# The continuation bits of a block ID (VBR8) and of the abbreviation ID width after it (VBR4).
_CONTINUED = 0x880
# Arrays up to this size are cached after decoding.
_SHORT = 64
_ENTRY_BYTES, _FEW_ENTRIES = 4, 4096
_FIXED, _CHAR6 = Encoding.FIXED, Encoding.CHAR6


class Block(Struct, frozen=True):
    """The location of the content of a block, and the width of its abbreviation IDs.

    `inherited` is the number of abbreviations that preceding BLOCKINFO blocks define for it; later
    definitions do not apply.
    """

    number: int
    begin: int
    end: int
    width: int
    inherited: int = 0


class LongArray(Struct, frozen=True):
    """The location of a long array that is not decoded yet."""

    position: int
    end: int
    count: int
    element: Field


class Record(Struct, eq=False):
    """One record. The meaning of `code` depends on the block ID.

    The array is decoded on demand.
    """

    code: int
    position: int
    _stream: BitStream
    _scalars: list[int]
    _array: LongArray | None = None

    @property
    def count(self) -> int:
        """Return the number of operands without decoding them."""
        return len(self._scalars) + (self._array.count if self._array else 0)

    @property
    def values(self) -> Sequence[int]:
        """Return the operands: `bytes` if they consist of a long byte array only."""
        if self._array is None:
            return self._scalars
        decoded = self._stream.decode(self._array)
        if self._array.count > _SHORT:
            return [*self._scalars, *decoded] if self._scalars else decoded
        self._scalars, self._array = [*self._scalars, *decoded], None
        return self._scalars

    def operand(self, place: int, field: str) -> int:
        """Return one operand. If it is missing, raises VerificationError with the name `field`."""
        if place < len(self._scalars):
            return self._scalars[place]
        if place < self.count:
            return self.values[place]
        reason = f"it has no operand {place}, the {field}"
        raise self.malformed(reason)

    def text(self, begin: int = 0) -> bytes:
        """Return the operands from `begin` on as bytes. Raises VerificationError if one does not fit in a byte."""
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
        """Count this record as kept in memory. Raises VerificationError like `BitStream.keep`."""
        self._stream.keep(self.position)

    def malformed(self, reason: str) -> VerificationError:
        """Return an error with the location of this record and the reason."""
        return self._stream.malformed(self.position, f"record {self.code}", reason)


class _Budget(Struct):
    """The remaining limits of a stream. They bound work and memory by the size of the stream."""

    free_operands: int
    entries: int


class BitStream:
    """The bits of a view, and the abbreviations that its BLOCKINFO blocks define."""

    __slots__ = ("_budget", "data", "shared", "size", "view")

    def __init__(self, view: ByteView) -> None:
        """Read all bytes of the view."""
        self.view = view
        # Padded, because a 64-bit word may be read at any byte.
        self.data = view.whole() + _PADDING
        self.size = 8 * view.size
        # The tuples are replaced, not changed, so that modules can share them.
        self.shared: dict[int, tuple[Abbreviation, ...]] = {}
        self._budget = _Budget(self.size, view.size // _ENTRY_BYTES + _FEW_ENTRIES)

    def anew(self) -> BitStream:
        """Return the same bits without BLOCKINFO abbreviations, because each module defines its own."""
        other = BitStream.__new__(BitStream)
        other.view, other.data, other.size = self.view, self.data, self.size
        other.shared, other._budget = {}, self._budget  # noqa: SLF001 (its own class)
        return other

    def spend(self, count: int, position: int) -> None:
        """Count operands that take no bits. Raises VerificationError if there are too many."""
        self._budget.free_operands -= count
        if self._budget.free_operands < 0:
            reason = "abbreviations give more operands than the stream has bits"
            raise self.malformed(position, "record", reason)

    def keep(self, position: int) -> None:
        """Count an entry that a reader keeps in memory. Raises VerificationError if there are too many.

        Abbreviations can encode a type or a symbol in three bits; LLVM's writer uses far more.
        """
        self._budget.entries -= 1
        if self._budget.entries < 0:
            raise self.malformed(position, "module", "more entries than its size can hold")

    def decode(self, place: LongArray) -> Sequence[int]:
        """Return the numbers of an array. Raises VerificationError if one is too large."""
        (encoding, width), data = place.element, self.data
        if encoding == _CHAR6:
            return char6(data, place.position, place.count)
        if encoding == _FIXED:
            return fixed_numbers(data, place.position, place.count, width)
        try:
            if width == USUAL_CHUNK:
                return vbr6_numbers(data, place.position, place.end)
            return vbr_numbers(data, place.position, place.end, place.count, width)[0]
        except ValueError as error:
            raise self.malformed(place.position, "record", str(error)) from error

    def malformed(self, position: int, field: str, reason: str) -> VerificationError:
        """Return an error with a bit position."""
        return self.view.malformed(position >> 3, f"{field} (bit {position & 7})", reason)


def block_at(stream: BitStream, position: int, limit: int, word: int) -> Block:
    """Return the block whose ID and size are at a position, after the abbreviation ID.

    `word` has the bits at the position. Raises VerificationError if the block ends after `limit`, or if the width
    of its abbreviation IDs is invalid.
    """
    data = stream.data
    if word & _CONTINUED:
        try:
            number, behind = vbr_at(data, position, 8)
            width, behind = vbr_at(data, behind, 4)
        except ValueError as error:
            raise stream.malformed(position, "block", str(error)) from error
    else:
        number, width, behind = word & 0x7F, word >> 8 & 7, position + 12
    begin = behind + 63 & ~31
    end = begin + 32 * _size_at(data, (begin >> 3) - 4)[0] if begin <= stream.size else begin
    if end <= limit and _MIN_WIDTH <= width <= _MAX_WIDTH:
        return Block(number, begin, end, width, len(stream.shared.get(number, ())))
    reason = f"it has abbreviation numbers of {width} bits"
    if end > limit:
        reason = f"its {(end - begin) // 8} bytes do not fit in what is around it"
    raise stream.malformed(position, f"block {number}", reason)


def outer_block(stream: BitStream, position: int) -> Block:
    """Return the top-level block at a byte-aligned position.

    Raises VerificationError if no block begins there.
    """
    (word,) = _word_at(stream.data, position >> 3)
    if word & (1 << _MIN_WIDTH) - 1 != ENTER_BLOCK:
        raise stream.malformed(position, "stream", "no block begins here")
    return block_at(stream, position + _MIN_WIDTH, stream.size, word >> _MIN_WIDTH)
