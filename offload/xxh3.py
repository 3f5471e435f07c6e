"""XXH3 of 64 bits without a seed, as LLVM has it (`llvm/lib/Support/xxhash.cpp`)."""

from __future__ import annotations

from collections.abc import Iterator

_MASK = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578"
    "825ad07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea3"
    "71644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931"
    "c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE, _LANES, _CONSUMED = 64, 8, 8


def xxh3_64(data: bytes) -> int:
    """Return the hash of some bytes."""
    length = len(data)
    if length > 240:  # noqa: PLR2004 (where the algorithm changes)
        return _long(data)
    if length > 128:  # noqa: PLR2004
        return _129_to_240(data)
    if length > 16:  # noqa: PLR2004
        return _17_to_128(data)
    if length > 8:  # noqa: PLR2004
        return _9_to_16(data)
    if length > 3:  # noqa: PLR2004
        return _4_to_8(data)
    return _0_to_3(data)


def _0_to_3(data: bytes) -> int:
    length = len(data)
    if not length:
        return _xxh64_avalanche(_word(_SECRET, 56) ^ _word(_SECRET, 64))
    combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
    return _xxh64_avalanche(combined ^ _word(_SECRET, 0, 4) ^ _word(_SECRET, 4, 4))


def _4_to_8(data: bytes) -> int:
    length = len(data)
    both = _word(data, length - 4, 4) + (_word(data, 0, 4) << 32)
    value = both ^ _word(_SECRET, 8) ^ _word(_SECRET, 16)
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * _MX2 & _MASK
    value ^= (value >> 35) + length
    value = value * _MX2 & _MASK
    return value ^ value >> 28


def _9_to_16(data: bytes) -> int:
    length = len(data)
    low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
    high = _word(data, length - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(length + swapped + high + _folded(low, high))


def _17_to_128(data: bytes) -> int:
    length = len(data)
    total = length * _P64_1
    for number in range((length - 1) // 32 + 1):
        total += _mixed(data, 16 * number, 32 * number)
        total += _mixed(data, length - 16 * (number + 1), 32 * number + 16)
    return _avalanche(total)


def _129_to_240(data: bytes) -> int:
    length = len(data)
    total = length * _P64_1 + sum(_mixed(data, 16 * one, 16 * one) for one in range(8))
    total = _avalanche(total)
    for one in range(8, length // 16):
        total += _mixed(data, 16 * one, 16 * (one - 8) + 3)
    return _avalanche(total + _mixed(data, length - 16, 136 - 17))


def _long(data: bytes) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    stripes = (len(_SECRET) - _STRIPE) // _CONSUMED
    for number in range((len(data) - 1) // _STRIPE):
        place = number % stripes
        _accumulate(lanes, data, _STRIPE * number, _CONSUMED * place)
        if place == stripes - 1:
            _scramble(lanes)
    _accumulate(lanes, data, len(data) - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = len(data) * _P64_1
    for one in range(0, _LANES, 2):
        keys = (_word(_SECRET, 11 + 8 * one), _word(_SECRET, 19 + 8 * one))
        total += _folded(lanes[one] ^ keys[0], lanes[one + 1] ^ keys[1])
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, at: int, secret: int) -> None:
    for lane, word in enumerate(_words(data, at)):
        keyed = word ^ _word(_SECRET, secret + 8 * lane)
        lanes[lane ^ 1] = (lanes[lane ^ 1] + word) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK


def _scramble(lanes: list[int]) -> None:
    for lane, key in enumerate(_words(_SECRET, len(_SECRET) - _STRIPE)):
        value = lanes[lane]
        lanes[lane] = (value ^ value >> 47 ^ key) * _P32_1 & _MASK


def _words(data: bytes, at: int) -> Iterator[int]:
    return (_word(data, at + 8 * lane) for lane in range(_LANES))


def _mixed(data: bytes, at: int, secret: int) -> int:
    low, high = _word(data, at), _word(data, at + 8)
    return _folded(low ^ _word(_SECRET, secret), high ^ _word(_SECRET, secret + 8))


def _folded(low: int, high: int) -> int:
    product = low * high
    return product & _MASK ^ product >> 64


def _avalanche(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 37) * _MX1 & _MASK
    return value ^ value >> 32


def _xxh64_avalanche(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _MASK


def _word(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")
