from __future__ import annotations

import pytest

from mlir_offload.offload.string_order import djb_hash, hash_value, written_order, xxh3_64

USUAL = (b"file", b"triple", b"arch", b"kind")

# The order of strings in the output of the packagers of LLVM 15, 16, 19, 22 and 23.
ORDERS = {
    15: ("StringMap", "StringMap"),
    16: ("DenseMap", "StringMap"),
    22: ("DenseMap", "MapVector"),
    23: ("DenseMap of LLVM 23", "MapVector"),
}
# The order of the keys key0 to key59, for which the table grows and has collisions, by LLVM 23.1.
_GROWN = """
30 12 18 arch 35 28 0 42 31 triple 8 9 52 39 44 51 17 15 24 2 26 34 5 21 49 1 54 47 7 40 32 38 11 22
59 36 19 48 50 27 3 55 10 45 56 4 6 16 33 29 53 43 46 58 23 20 57 13 25 37 41 14
"""


@pytest.mark.parametrize(
    ("major", "extra", "order"),
    [
        (15, (), b"triple arch"),
        (16, (), b"triple arch"),
        (22, (), b"arch triple"),
        (15, (b"foo", b"zeta"), b"triple foo zeta arch"),
        (16, (b"foo", b"zeta"), b"triple zeta foo arch"),
        (22, (b"foo", b"zeta"), b"arch zeta triple foo"),
        (15, (b"feature",), b"triple feature arch"),
        (22, (b"feature",), b"feature arch triple"),
        (23, (), b"arch triple"),
        (23, (b"feature", b"foo", b"mode"), b"arch foo triple mode feature"),
    ],
)
def test_strings_are_walked_as_llvms_containers_are(
    major: int, extra: tuple[bytes, ...], order: bytes
) -> None:
    assert b" ".join(written_order((*USUAL, *extra), ORDERS[major])) == order


def test_the_table_of_llvm_23_probes_one_bucket_after_the_other() -> None:
    keys = [b"file", b"triple", b"arch", *(b"key%d" % number for number in range(60)), b"kind"]
    written = [key.decode().removeprefix("key") for key in written_order(keys, ORDERS[23])]
    assert written == _GROWN.split()


@pytest.mark.parametrize(
    ("length", "value"),
    [
        # From the xxhash package of PyPI, for the bytes 0, 7, 14 ... modulo 251.
        (0, 0x2D06800538D394C2),
        (3, 0xC3489259E968AD9E),
        (8, 0xB88DEE77F6BF6980),
        (16, 0x9DA23836ADF2BE1E),
        (100, 0x1023AE92E631EAC5),
        (200, 0xD12016B53C9565BA),
        (1500, 0xDE3153DCB8699975),
    ],
)
def test_xxh3_is_that_of_64_bits(length: int, value: int) -> None:
    assert xxh3_64(bytes(at * 7 % 251 for at in range(length))) == value


@pytest.mark.parametrize("key", [b"", b"a", b"arch", bytes(range(256))])
def test_djb_is_a_polynomial_in_33_of_32_bits(key: bytes) -> None:
    assert djb_hash(key) == sum(byte * 33**at for at, byte in enumerate(key[::-1])) % 2**32


@pytest.mark.parametrize(
    ("length", "value"),
    [
        # From a program that includes llvm/ADT/Hashing.h of LLVM 14, for the bytes 1, 8, 15 ...
        (0, 0x65B0C5ECC2C5CC82),
        (1, 0xA3C7B31FE002D449),
        (3, 0xB5A209A9EE20806A),
        (4, 0x9AD7664425EF0A2B),
        (8, 0x9ED0EDBA6F06E6C3),
        (9, 0xEBAFD89AA385310A),
        (16, 0x54B85B8BBAC88477),
        (17, 0x06D7D13051267C99),
        (32, 0xA11BBD9BDF9B3F9D),
        (33, 0xF409249512D79A95),
        (64, 0x0DB2334478753118),
        (65, 0x1C4DCDD0983B0E03),
        (128, 0x11B03719A1CF7EA3),
        (129, 0x70959EFDC63B686F),
        (300, 0x64528DBCF48DF960),
    ],
)
def test_hash_value_is_llvms(length: int, value: int) -> None:
    assert hash_value(bytes((7 * at + 1) % 256 for at in range(length))) == value


@pytest.mark.parametrize("containers", ORDERS.values())
@pytest.mark.parametrize("count", [0, 1, 11, 12, 13, 47, 48, 49, 96, 200])
def test_no_key_is_lost_when_a_table_grows(count: int, containers: tuple[str, str]) -> None:
    keys = [f"key{number}".encode() for number in range(count)]
    assert sorted(written_order(keys, containers)) == sorted(keys)


def test_file_and_kind_are_no_strings_of_the_image() -> None:
    assert written_order((b"file", b"kind"), ORDERS[15]) == ()
