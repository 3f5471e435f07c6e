"""The order in which LLVM's packager writes the strings of an image: that of LLVM's hash tables.

The packager inserts the keys of `--image=` into one container, and then, in the order of that container, into
a second one, whose order is that of the binary. The table `offload_abi` names both for each release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

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
_MASK32 = (1 << 32) - 1
_MASK64 = (1 << 64) - 1
_BLOCK = 64

# llvm/include/llvm/ADT/Hashing.h, up to LLVM 22.
_SEED = 0xFF51AFD7ED558CCD
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_K3 = 0xC949D7C7509E6557
_MULTIPLIER = 0x9DDFEA08EB382D69


def xxh3_64(data: bytes) -> int:
    """Return the XXH3 hash of some bytes."""
    length = len(data)
    if length > 240:  # noqa: PLR2004 (the algorithm depends on the length)
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
        return _xxh64_avalanche(_little_endian(_SECRET, 56) ^ _little_endian(_SECRET, 64))
    combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
    return _xxh64_avalanche(
        combined ^ _little_endian(_SECRET, 0, 4) ^ _little_endian(_SECRET, 4, 4)
    )


def _4_to_8(data: bytes) -> int:
    length = len(data)
    both = _little_endian(data, length - 4, 4) + (_little_endian(data, 0, 4) << 32)
    value = both ^ _little_endian(_SECRET, 8) ^ _little_endian(_SECRET, 16)
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * _MX2 & _MASK
    value ^= (value >> 35) + length
    value = value * _MX2 & _MASK
    return value ^ value >> 28


def _9_to_16(data: bytes) -> int:
    length = len(data)
    low = _little_endian(data, 0) ^ _little_endian(_SECRET, 24) ^ _little_endian(_SECRET, 32)
    high = (
        _little_endian(data, length - 8) ^ _little_endian(_SECRET, 40) ^ _little_endian(_SECRET, 48)
    )
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
        keys = (_little_endian(_SECRET, 11 + 8 * one), _little_endian(_SECRET, 19 + 8 * one))
        total += _folded(lanes[one] ^ keys[0], lanes[one + 1] ^ keys[1])
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, at: int, secret: int) -> None:
    for lane, word in enumerate(_words(data, at)):
        keyed = word ^ _little_endian(_SECRET, secret + 8 * lane)
        lanes[lane ^ 1] = (lanes[lane ^ 1] + word) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK


def _scramble(lanes: list[int]) -> None:
    for lane, key in enumerate(_words(_SECRET, len(_SECRET) - _STRIPE)):
        value = lanes[lane]
        lanes[lane] = (value ^ value >> 47 ^ key) * _P32_1 & _MASK


def _words(data: bytes, at: int) -> Iterator[int]:
    return (_little_endian(data, at + 8 * lane) for lane in range(_LANES))


def _mixed(data: bytes, at: int, secret: int) -> int:
    low, high = _little_endian(data, at), _little_endian(data, at + 8)
    return _folded(
        low ^ _little_endian(_SECRET, secret), high ^ _little_endian(_SECRET, secret + 8)
    )


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


def _little_endian(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


class HashTable(Struct, frozen=True):
    """The hash and growth policy of an LLVM hash table, which doubles when it is 3/4 full.

    `grows_at_limit`: exactly 3/4 is sufficient, and the table grows before the insertion. All tables reinsert
    the old buckets in order when they grow, and probe quadratically or, with `is_linear`, linearly. Erased
    entries are not modeled, because the packager erases none.
    """

    hash: Callable[[bytes], int]
    first_size: int
    grows_at_limit: bool
    is_linear: bool = False

    def walk(self, keys: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return the keys, inserted one after another, in the order of their buckets."""
        buckets: list[bytes | None] = [None] * self.first_size
        for count, key in enumerate(keys, start=1):
            if self.grows_at_limit and self._is_full(count, len(buckets)):
                buckets = self._grown(buckets)
            self._insert(buckets, key)
            if not self.grows_at_limit and self._is_full(count, len(buckets)):
                buckets = self._grown(buckets)
        return tuple(key for key in buckets if key is not None)

    def _is_full(self, count: int, size: int) -> bool:
        return 4 * count >= 3 * size + (0 if self.grows_at_limit else 1)

    def _grown(self, buckets: Sequence[bytes | None]) -> list[bytes | None]:
        grown: list[bytes | None] = [None] * (2 * len(buckets))
        for key in buckets:
            if key is not None:
                self._insert(grown, key)
        return grown

    def _insert(self, buckets: list[bytes | None], key: bytes) -> None:
        place = self.hash(key)
        step = 0
        while buckets[place := (place + step) % len(buckets)] is not None:
            step = 1 if self.is_linear else step + 1
        buckets[place] = key


def written_order(keys: Sequence[bytes], containers: Sequence[str]) -> tuple[bytes, ...]:
    """Return the distinct keys of one `--image=`, passed in its order, in the order of the binary.

    `containers` are the two that the packager of a release uses, by LLVM's names. `file` and `kind` are only
    inserted into the first one; they are not strings of the image.
    """
    first, second = (WALKS[name] for name in containers)
    return second([key for key in first(keys) if key not in CONSUMED_KEYS])


def djb_hash(key: bytes) -> int:
    """Return `llvm::djbHash` of a string with the seed of StringMap (`llvm/Support/DJB.h`)."""
    value = 0
    for byte in key:
        value = (value * 33 + byte) & _MASK32
    return value


def hash_value(key: bytes) -> int:
    """Return `llvm::hash_value` of a string (`llvm/ADT/Hashing.h`, derived from CityHash)."""
    length = len(key)
    if length > _BLOCK:
        return _hash_long(key)
    for limit, hash_short in _SHORT_HASHES:
        if length <= limit:
            return hash_short(key)
    return _hash_33_to_64(key)


def _hash_0_to_3(key: bytes) -> int:
    if not key:
        return _K2 ^ _SEED
    low = key[0] + (key[len(key) >> 1] << 8)
    high = len(key) + (key[-1] << 2)
    return _shift_mix((low * _K2) ^ (high * _K3) ^ _SEED) * _K2 & _MASK64


def _hash_4_to_8(key: bytes) -> int:
    return _hash_pair(len(key) + (_word(key, 0, 4) << 3), _SEED ^ _word(key, len(key) - 4, 4))


def _hash_9_to_16(key: bytes) -> int:
    last = _word(key, len(key) - 8)
    return _hash_pair(_SEED ^ _word(key, 0), _rotate(last + len(key), len(key))) ^ last


def _hash_17_to_32(key: bytes) -> int:
    a, b = _word(key, 0) * _K1, _word(key, 8)
    c, d = _word(key, len(key) - 8) * _K2, _word(key, len(key) - 16) * _K0
    low = _rotate(a - b, 43) + _rotate(c ^ _SEED, 30) + d
    return _hash_pair(low, a + _rotate(b ^ _K3, 20) - c + len(key) + _SEED)


def _hash_33_to_64(key: bytes) -> int:
    end = len(key)
    a = _word(key, 0) + (end + _word(key, end - 16)) * _K0
    v = _fold(a, _word(key, 24), _word(key, 8), _word(key, 16))
    a = _word(key, 16) + _word(key, end - 32)
    w = _fold(a, _word(key, end - 8), _word(key, end - 24), _word(key, end - 16))
    mixed = _shift_mix((v[0] + w[1]) * _K2 + (w[0] + v[1]) * _K0)
    return _shift_mix((_SEED ^ (mixed * _K0)) + v[1]) * _K2 & _MASK64


def _fold(a: int, z: int, second: int, third: int) -> tuple[int, int]:
    b, c = _rotate(a + z, 52), _rotate(a, 37)
    a += second
    c += _rotate(a, 7)
    a += third
    return a + z, b + _rotate(a, 31) + c


_SHORT_HASHES: tuple[tuple[int, Callable[[bytes], int]], ...] = (
    (3, _hash_0_to_3),
    (8, _hash_4_to_8),
    (16, _hash_9_to_16),
    (32, _hash_17_to_32),
)


def _hash_long(key: bytes) -> int:
    """Mix blocks of 64 bytes; the last block ends at the end of the key and may overlap the previous one."""
    state = [0, _SEED, _hash_pair(_SEED, _K1), _rotate(_SEED ^ _K1, 49), _SEED * _K1 & _MASK64]
    state += [_shift_mix(_SEED), 0]
    state[6] = _hash_pair(state[4], state[5])
    whole = len(key) // _BLOCK * _BLOCK
    for start in range(0, whole, _BLOCK):
        state = _mix(state, key[start : start + _BLOCK])
    if whole != len(key):
        state = _mix(state, key[-_BLOCK:])
    h0, h1, h2, h3, h4, h5, h6 = state
    return _hash_pair(
        _hash_pair(h3, h5) + _shift_mix(h1) * _K1 + h2,
        _hash_pair(h4, h6) + _shift_mix(len(key)) * _K1 + h0,
    )


def _mix(state: Sequence[int], block: bytes) -> list[int]:
    h0, h1, h2, h3, h4, h5, h6 = state
    h0 = _rotate(h0 + h1 + h3 + _word(block, 8), 37) * _K1
    h1 = _rotate(h1 + h4 + _word(block, 48), 42) * _K1
    h0 ^= h6
    h1 += h3 + _word(block, 40)
    h2 = _rotate(h2 + h5, 33) * _K1
    h3, h4 = _mix_32_bytes(block[:32], h4 * _K1, h0 + h5)
    h5, h6 = _mix_32_bytes(block[32:], h2 + h6, h1 + _word(block, 16))
    return [value & _MASK64 for value in (h2, h1, h0, h3, h4, h5, h6)]


def _mix_32_bytes(half: bytes, a: int, b: int) -> tuple[int, int]:
    a += _word(half, 0)
    c = _word(half, 24)
    b = _rotate(b + a + c, 21)
    d = a
    a += _word(half, 8) + _word(half, 16)
    return a + c, b + _rotate(a, 44) + d


def _word(key: bytes, offset: int, size: int = 8) -> int:
    return int.from_bytes(key[offset : offset + size], "little")


def _rotate(value: int, count: int) -> int:
    value &= _MASK64
    return (value >> count | value << (64 - count)) & _MASK64


def _shift_mix(value: int) -> int:
    value &= _MASK64
    return value ^ (value >> 47)


def _hash_pair(low: int, high: int) -> int:
    first = _shift_mix((low ^ high) * _MULTIPLIER)
    return _shift_mix((high ^ first) * _MULTIPLIER) * _MULTIPLIER & _MASK64


def xxh3_hash(key: bytes) -> int:
    """Return `llvm::hash_value` of a string since LLVM 23."""
    return xxh3_64(key) ^ _SEED


# The keys that the packager removes before it writes the strings of an image.
CONSUMED_KEYS = (b"file", b"kind")

# llvm/lib/Support/StringMap.cpp (grows after an insertion), llvm/include/llvm/ADT/DenseMap.h (before).
WALKS: Mapping[str, Callable[[Sequence[bytes]], tuple[bytes, ...]]] = {
    "StringMap": HashTable(djb_hash, 16, grows_at_limit=False).walk,
    "DenseMap": HashTable(hash_value, 64, grows_at_limit=True).walk,
    "DenseMap of LLVM 23": HashTable(xxh3_hash, 64, grows_at_limit=True, is_linear=True).walk,
    "MapVector": tuple,
}
