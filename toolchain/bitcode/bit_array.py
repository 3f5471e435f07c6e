"""Decode arrays of bit fields in bulk, because a loop over single numbers is too slow for a string of 50 MB.

Positions are in bits. Bits past the end of the data are zero. `VBR` is the variable bit rate encoding of
the bitstream: a number consists of chunks, and the highest bit of a chunk is set if another chunk follows.
"""

from __future__ import annotations

from array import array
from binascii import b2a_base64
from collections.abc import Sequence
from itertools import compress

from mlir_offload.toolchain.pattern import pattern

# base64 is implemented in C and encodes six bits as a letter. These tables map the letter to its number,
# and the number to its char6 character.
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_CHAR6 = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_TO_NUMBER = bytes.maketrans(_LETTERS, bytes(range(64)))
_TO_CHAR6 = bytes.maketrans(bytes(range(64)), _CHAR6)
_CONTINUED = bytes(range(32, 64))
# The chunks of a number that does not fit in a byte: three or more, or two of which the second is 8 or more.
_LARGE = pattern(rb"[\x20-\x3f]{2,}[\x00-\x1f]|[\x20-\x3f][\x08-\x1f]")
_MAX_CHUNKS = 13
_PIECE = 1 << 14
_FEW = 64
# From this count on, splitting all chunks at once is faster.
_SEVERAL = 8
_FEW_CONTINUED = [sum(32 << 6 * number for number in range(count)) for count in range(_SEVERAL)]
_VALUE_BITS = 64
_MAX_VALUE = (1 << _VALUE_BITS) - 1
_TOO_LARGE = "a number has more than 64 bits"
# The most bytes of a 64-bit VBR (in chunks of two bits) that begins at any bit of a byte.
VBR_BYTES = 17
_WORD_BITS = 8 * VBR_BYTES


def _lanes(mask: int) -> int:
    return int.from_bytes(mask.to_bytes(8, "little") * (_PIECE // 8), "little")


_SPREAD = (
    (_lanes(0x000000000FFFFFFF), 4),
    (_lanes(0x00003FFF00003FFF), 2),
    (_lanes(0x007F007F007F007F), 1),
)


def bits(data: bytes, position: int, count: int) -> int:
    """Return `count` bits as one number; the first bit is the lowest."""
    begin = position >> 3
    raw = data[begin : (position + count + 7) >> 3]
    return (int.from_bytes(raw, "little") >> (position & 7)) & ((1 << count) - 1)


def sextets(data: bytes, position: int, count: int) -> bytes:
    """Return `count` six-bit numbers, one per byte."""
    if count <= 0:
        return b""
    # base64 takes the first bits as the highest, a bitstream as the lowest, so the order is reversed.
    packed = bits(data, position, 6 * count).to_bytes(-(-count // 4) * 3, "big")
    return b2a_base64(packed, newline=False)[::-1].translate(_TO_NUMBER)[:count]


def char6(data: bytes, position: int, count: int) -> bytes:
    """Return `count` char6 characters."""
    pieces = [
        sextets(data, position + 6 * begin, min(_PIECE, count - begin)).translate(_TO_CHAR6)
        for begin in range(0, count, _PIECE)
    ]
    return b"".join(pieces)


def octets(data: bytes, position: int, count: int) -> bytes:
    """Return `count` bytes that begin at any bit."""
    if position & 7 == 0:
        return data[position >> 3 : (position >> 3) + count]
    pieces = [
        bits(data, position + 8 * begin, 8 * size).to_bytes(size, "little")
        for begin in range(0, count, _PIECE)
        for size in (min(_PIECE, count - begin),)
    ]
    return b"".join(pieces)


def septets(data: bytes, position: int, count: int) -> bytes:
    """Return `count` seven-bit numbers, one per byte."""
    pieces = [
        _widened(bits(data, position + 7 * begin, 7 * size).to_bytes(-(-size // 8) * 7, "little"))[
            :size
        ]
        for begin in range(0, count, _PIECE)
        for size in (min(_PIECE, count - begin),)
    ]
    return b"".join(pieces)


def _widened(packed: bytes) -> bytes:
    """Expand each 7 bytes to 8 in 64-bit lanes: split halves, then quarters, then single numbers."""
    lanes = bytearray(len(packed) // 7 * 8)
    for place in range(7):
        lanes[place::8] = packed[place::7]
    number = int.from_bytes(lanes, "little")
    for low, shift in _SPREAD:
        stays = number & low
        number = stays | ((number ^ stays) << shift)
    return number.to_bytes(len(lanes), "little")


def vbr6_end(data: bytes, position: int, end: int, count: int) -> int | None:
    """Return the end of `count` VBR6 numbers, or None if it is after `end`."""
    while count:
        size = min(count, _PIECE)
        if position + 6 * size > end:
            return None
        found = sextets(data, position, size)
        count -= len(found.translate(None, _CONTINUED))
        position += 6 * size
    return position


def vbr6_numbers(data: bytes, position: int, end: int) -> Sequence[int]:
    """Return the VBR6 numbers between two positions, as bytes if all fit.

    Raises ValueError if one has more than 64 bits.
    """
    numbers: bytearray | array[int] = bytearray()
    while position < end:
        chunks = sextets(data, position, min((end - position) // 6, _PIECE))
        while chunks[-1] in _CONTINUED:
            chunks += sextets(data, position + 6 * len(chunks), 1)
        position += 6 * len(chunks)
        begin = 0
        for large in _LARGE.finditer(chunks) if _has_large(chunks) else ():
            if isinstance(numbers, bytearray):
                numbers = array("Q", iter(numbers))
            numbers.extend(_joined_pairs(chunks[begin : large.start()]))
            numbers.append(_joined(large[0]))
            begin = large.end()
        numbers.extend(_joined_pairs(chunks[begin:]))
    return bytes(numbers) if isinstance(numbers, bytearray) else numbers


def _has_large(chunks: bytes) -> bool:
    """Return whether _LARGE matches, computed for all chunks at once in one large integer."""
    number = int.from_bytes(chunks, "little")
    ones = int.from_bytes(b"\1" * len(chunks), "little")
    continued = (number >> 5) & ones
    second = continued << 8
    return bool(continued & second or number & (second * 0x18))


def _joined(chunks: bytes) -> int:
    if len(chunks) > _MAX_CHUNKS:
        raise ValueError(_TOO_LARGE)
    return sum((chunk & 31) << 5 * place for place, chunk in enumerate(chunks)) & _MAX_VALUE


def _joined_pairs(chunks: bytes) -> bytes:
    """Join each continued chunk with the next, all at once in one large integer.

    A number below 256 takes one chunk, or two of which the second contains its upper three bits.
    """
    size = len(chunks)
    number = int.from_bytes(chunks, "little")
    ones = int.from_bytes(b"\1" * size, "little")
    continued = (number >> 5) & ones
    joined = (number & (ones * 0x1F)) | (((number >> 8) & (continued * 7)) << 5)
    first = ones ^ (continued << 8)
    return bytes(compress(joined.to_bytes(size, "little"), first.to_bytes(size, "little")))


def vbr6_few(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return a few VBR6 numbers and their end.

    Raises ValueError if one has more than 64 bits.
    """
    if count >= _SEVERAL:
        found = _pairs(sextets(data, position, 2 * count), count)
        if found is not None:
            small, used = found
            return list(small), position + 6 * used
    else:
        word = bits(data, position, 6 * count)
        if not word & _FEW_CONTINUED[count]:
            return [word >> shift & 31 for shift in range(0, 6 * count, 6)], position + 6 * count
    numbers: list[int] = []
    word, left = 0, 0
    for _ in range(count):
        if left < _WORD_BITS:
            left = 4 * _WORD_BITS
            word = bits(data, position, left)
        value, used = word & 63, 6
        if value > 31:  # noqa: PLR2004 (the upper bit of a chunk)
            # A fast path for two chunks: characters take two, and most records that are read are strings.
            if word & 0x800:
                value, used = vbr(word, 6)
            else:
                value, used = (value & 31) | (word >> 1 & 0x3E0), 12
        numbers.append(value)
        word >>= used
        left -= used
        position += used
    return numbers, position


def _pairs(chunks: bytes, count: int) -> tuple[bytes, int] | None:
    """Return `count` numbers below 256 and the number of their chunks; None if one is larger."""
    used = count
    # Each chunk that is not the last of its number takes another one.
    while missing := count - len(chunks[:used].translate(None, _CONTINUED)):
        used += missing
        if used > len(chunks):
            return None
    taken = chunks[:used]
    if used == count:
        return taken, used
    return None if _has_large(taken) else (_joined_pairs(taken), used)


def vbr(word: int, width: int) -> tuple[int, int]:
    """Return the VBR number in the lowest bits, with chunks of `width` bits, and its size in bits.

    Raises ValueError if it has more than 64 bits.
    """
    high = 1 << (width - 1)
    value, shift, used = word & (high - 1), width - 1, width
    while word & high:
        if shift >= _VALUE_BITS:
            raise ValueError(_TOO_LARGE)
        word >>= width
        value |= (word & (high - 1)) << shift
        shift += width - 1
        used += width
    return value & _MAX_VALUE, used


def vbr_at(data: bytes, position: int, width: int) -> tuple[int, int]:
    """Return the VBR number at a position, and its end. Raises ValueError like `vbr`."""
    begin = position >> 3
    word = int.from_bytes(data[begin : begin + VBR_BYTES], "little") >> (position & 7)
    value, used = vbr(word, width)
    return value, position + used


def vbr_numbers(
    data: bytes, position: int, end: int, count: int, width: int
) -> tuple[array[int], int]:
    """Return VBR numbers and their end; fewer than `count` if the rest is after `end`."""
    numbers = array("Q")
    while len(numbers) < count and position < end:
        value, position = vbr_at(data, position, width)
        numbers.append(value)
    return numbers, position


def fixed_numbers(data: bytes, position: int, count: int, width: int) -> Sequence[int]:
    """Return `count` numbers of `width` bits, as bytes if they fit."""
    if width == 8:  # noqa: PLR2004 (a byte)
        return octets(data, position, count)
    if width == 7:  # noqa: PLR2004 (a character of ASCII)
        return septets(data, position, count)
    numbers = array("B" if width < 8 else "Q")  # noqa: PLR2004
    mask = (1 << width) - 1
    for begin in range(0, count, _FEW):
        size = min(_FEW, count - begin) * width
        few = bits(data, position + begin * width, size)
        numbers.extend([(few >> shift) & mask for shift in range(0, size, width)])
    return numbers.tobytes() if width < 8 else numbers  # noqa: PLR2004
