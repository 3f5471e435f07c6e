from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bit_writer import BitWriter, array, blob, fixed, literal, vbr
from support.bit_writer import char6 as char6_field

from mlir_offload.toolchain.bitcode.abbrev import read_abbreviation
from mlir_offload.toolchain.bitcode.bit_array import (
    char6,
    fixed_numbers,
    sextets,
    vbr6_end,
    vbr6_few,
    vbr6_numbers,
    vbr_numbers,
)
from mlir_offload.toolchain.bitcode.bitstream import BitStream, Block, Record, outer_block
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.byte_view import memory_view
from mlir_offload.toolchain.errors import VerificationError

BYTES = st.lists(st.integers(0, 255), max_size=300)
WORDS = st.lists(st.one_of(st.integers(0, 70), st.integers(0, 2**64 - 1)), max_size=100)
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
# Lengths around the chunk size in which long arrays are decoded.
LONG = [16383, 16384, 16385, 40000]


def packed(numbers: Sequence[int], width: int, offset: int) -> bytes:
    writer = BitWriter()
    writer.fixed(0, offset)
    for number in numbers:
        writer.fixed(number, width)
    return writer.bytes()


def variable(numbers: Sequence[int], width: int, offset: int) -> tuple[bytes, int]:
    writer = BitWriter()
    writer.fixed(0, offset)
    for number in numbers:
        writer.vbr(number, width)
    return writer.bytes(), writer.position


@pytest.mark.parametrize("width", range(1, 33))
@given(offset=st.integers(0, 9), source=st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_numbers_of_any_width_are_unpacked(width: int, offset: int, source: random.Random) -> None:
    numbers = [source.getrandbits(width) for _ in range(source.randrange(200))]
    data = packed(numbers, width, offset)
    assert list(fixed_numbers(data, offset, len(numbers), width)) == numbers


@pytest.mark.parametrize("width", [7, 8])
@pytest.mark.parametrize("count", LONG)
def test_long_strings_are_unpacked_in_pieces(width: int, count: int) -> None:
    text = random.Random(count).choices(range(1 << width), k=count)  # noqa: S311 (test data)
    assert fixed_numbers(packed(text, width, 3), 3, count, width) == bytes(text)


@pytest.mark.parametrize("count", [0, 1, 5, *LONG])
def test_characters_of_six_bits_are_those_of_the_format(count: int) -> None:
    numbers = random.Random(count).choices(range(64), k=count)  # noqa: S311 (test data)
    data = packed(numbers, 6, 5)
    assert char6(data, 5, count).decode() == "".join(CHARACTERS[one] for one in numbers)
    assert list(sextets(data, 5, count)) == numbers


@given(numbers=st.one_of(BYTES, WORDS), offset=st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_variable_numbers_are_read_one_by_one_and_in_bulk(numbers: list[int], offset: int) -> None:
    data, end = variable(numbers, 6, offset)
    assert vbr6_end(data, offset, end, len(numbers)) == end
    assert list(vbr6_numbers(data, offset, end)) == numbers
    assert vbr6_few(data, offset, len(numbers)) == (numbers, end)


@pytest.mark.parametrize("largest", [31, 255, 256, 2**64 - 1])
@pytest.mark.parametrize("count", LONG)
def test_long_runs_of_variable_numbers_are_read_in_pieces(largest: int, count: int) -> None:
    source = random.Random(count)  # noqa: S311 (test data)
    numbers = [source.randint(0, 255 if source.random() < 0.99 else largest) for _ in range(count)]
    data, end = variable(numbers, 6, 1)
    assert vbr6_end(data, 1, end, count) == end
    found = vbr6_numbers(data, 1, end)
    assert list(found) == numbers
    assert isinstance(found, bytes) == (max(numbers) < 256)


@pytest.mark.parametrize("width", [2, 3, 4, 5, 8, 16, 32])
@given(numbers=WORDS)
@settings(max_examples=15, deadline=None)
def test_variable_numbers_may_have_chunks_of_any_width(width: int, numbers: list[int]) -> None:
    data, end = variable(numbers, width, 3)
    found, after = vbr_numbers(data, 3, end, len(numbers), width)
    assert (list(found), after) == (numbers, end)


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    data = bytes([0xFF]) * 20
    for read in (vbr6_few, vbr6_numbers):
        with pytest.raises(ValueError, match="more than 64 bits"):
            read(data, 0, 90)
    with pytest.raises(ValueError, match="more than 64 bits"):
        vbr_numbers(data, 0, 160, 1, 2)


def read(data: bytes) -> list[Record]:
    stream = BitStream(memory_view(data, form="LLVM bitcode", location="x.bc"))
    return list(BlockReader(stream, outer_block(stream, 0)).records())


def block(*records: tuple[int, Sequence[int]]) -> bytes:
    writer = BitWriter()
    with writer.block(8, 3):
        for code, operands in records:
            writer.record(code, operands)
    return writer.bytes()


def test_records_without_abbreviation_are_read() -> None:
    wanted = [(1, [2]), (7, []), (9, [0, 31, 32, 2**64 - 1]), (300, list(range(200)))]
    found = [(record.code, list(record.values)) for record in read(block(*wanted))]
    assert found == wanted
    assert [record.count for record in read(block(*wanted))] == [1, 0, 4, 200]


def test_abbreviations_hold_scalars_arrays_and_blobs() -> None:
    text = "Some.Name_1" * 10
    writer = BitWriter()
    with writer.block(8, 4):
        scalars = writer.define(literal(5), fixed(3), vbr(6), char6_field(), literal(77), fixed(0))
        name = writer.define(fixed(4), array(char6_field()))
        numbers = writer.define(literal(6), vbr(4), array(vbr(5)))
        words = writer.define(literal(8), array(fixed(9)))
        bytes_ = writer.define(literal(9), fixed(8), blob())
        writer.abbreviated(scalars, [5, 7, 1000, ord("z"), 77, 0])
        writer.abbreviated(name, [3], [ord(one) for one in text])
        writer.abbreviated(numbers, [6, 99], list(range(100)))
        writer.abbreviated(words, [8], [511] * 70)
        writer.abbreviated(bytes_, [9, 200], list(b"blob of bytes" * 9))
    found = read(writer.bytes())
    assert [(one.code, list(one.values)) for one in found] == [
        (5, [7, 1000, ord("z"), 77, 0]),
        (3, [ord(one) for one in text]),
        (6, [99, *range(100)]),
        (8, [511] * 70),
        (9, [200, *b"blob of bytes" * 9]),
    ]
    assert found[1].string() == text
    assert found[4].text(1) == b"blob of bytes" * 9
    assert found[2].operand(50, "number") == 49
    with pytest.raises(VerificationError, match=r"record 8 .*: a character of it is not a byte"):
        found[3].text()


def test_abbreviations_of_block_info_hold_in_the_blocks_it_names() -> None:
    writer = BitWriter()
    with writer.block(8, 3):
        with writer.block(0, 3):
            writer.record(1, [11])
            number = writer.define(literal(42), fixed(5))
        with writer.block(11, 4, inherited=[[*literal(42), *fixed(5)]]):
            writer.abbreviated(number, [42, 19])
        with writer.block(12, 4):
            writer.record(2, [3])
    stream = BitStream(memory_view(writer.bytes()))
    blocks = [one for one in BlockReader(stream, outer_block(stream, 0)) if isinstance(one, Block)]
    assert [one.number for one in blocks] == [0, 11, 12]
    found = [record for one in blocks[1:] for record in BlockReader(stream, one).records()]
    assert [(one.code, list(one.values)) for one in found] == [(42, [19]), (2, [3])]


def test_block_info_does_not_hold_in_blocks_before_it() -> None:
    writer = BitWriter()
    with writer.block(8, 3):
        with writer.block(11, 4):
            number = writer.define(literal(7), fixed(5))
            writer.abbreviated(number, [7, 3])
        with writer.block(0, 3):
            writer.record(1, [11])
            writer.define(literal(42), fixed(9))
    stream = BitStream(memory_view(writer.bytes()))
    blocks = [one for one in BlockReader(stream, outer_block(stream, 0)) if isinstance(one, Block)]
    (found,) = BlockReader(stream, blocks[0]).records()
    assert (found.code, list(found.values)) == (7, [3])


def test_abbreviation_that_no_record_can_use_is_accepted_until_it_is_used() -> None:
    writer = BitWriter()
    with writer.block(8, 3):
        writer.define(array(fixed(1)))
        writer.record(2, [3])
    (found,) = read(writer.bytes())
    assert (found.code, list(found.values)) == (2, [3])


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        (lambda w: w.raw_record(1, 1 << 40), "operands do not fit"),
        (lambda w: w.raw_record(1, 60), "leaves it|more than 64 bits"),
        (lambda w: w.fixed(5, 3), "abbreviation 5 is not defined"),
        (lambda w: (w.define(array(fixed(1))), w.fixed(4, 3)), "without a code"),
        (lambda w: (w.define(literal(1), array(literal(3))), w.fixed(4, 3)), "array of nothing"),
        (
            lambda w: (w.define(literal(1), array(array(fixed(1)))), w.fixed(4, 3)),
            "not its end|array of nothing",
        ),
        (lambda w: w.define(literal(1), fixed(33)), "field of 33 bits"),
        (lambda w: w.define(literal(1), vbr(1)), "field of 1 bits"),
        (lambda w: w.define(*[literal(1)] * 5000), "too long"),
        (lambda w: w.raw_block(9, 3, 1 << 20), "do not fit in what is around it"),
        (lambda w: w.raw_block(9, 1, 0), "abbreviation numbers of 1 bits"),
        (lambda w: w.raw_block(9, 40, 0), "abbreviation numbers of 40 bits"),
    ],
)
def test_what_no_writer_makes_is_refused_with_its_place(
    fill: Callable[[BitWriter], object], reason: str
) -> None:
    writer = BitWriter()
    with writer.block(8, 3):
        fill(writer)
        writer.fixed(0, 32 * 8)
    place = r"malformed LLVM bitcode: .* at offset \d+: "
    with pytest.raises(VerificationError, match=f"{place}.*({reason})"):
        read(writer.bytes())


@pytest.mark.parametrize("count", [10, 100])
def test_a_number_that_is_too_large_is_refused_in_short_and_in_long_records(count: int) -> None:
    writer = BitWriter()
    with writer.block(8, 3):
        writer.raw_record(5, count)
        writer.fixed((1 << 6 * 14) - 1, 6 * 14)
        for _ in range(count):
            writer.vbr(1, 6)
    with pytest.raises(VerificationError, match=r"at offset .* a number has more than 64 bits"):
        list(read(writer.bytes())[0].values)


def test_a_block_that_ends_before_its_length_is_refused() -> None:
    writer = BitWriter()
    with writer.block(8, 3):
        writer.fixed(0, 3)
        writer.fixed(0, 96)
    with pytest.raises(VerificationError, match="it ends here, not at bit"):
        read(writer.bytes())


def test_operands_that_take_no_bits_may_not_outnumber_the_bits() -> None:
    writer = BitWriter()
    with writer.block(8, 3):
        number = writer.define(*[literal(1)] * 1000)
        for _ in range(5000):
            writer.fixed(number, 3)
    with pytest.raises(VerificationError, match="more operands than the stream has bits"):
        read(writer.bytes())


def test_an_abbreviation_that_is_known_is_cut_by_the_end_of_its_block_too() -> None:
    # Nine fields, more than are decoded at once: the number 9 in 5 bits, then 8-bit numbers after a 1.
    word, size = 9, 5
    for number in range(9):
        word |= (number << 1 | 1) << size
        size += 9
    data = word.to_bytes(32, "little")
    whole = read_abbreviation(data, 0, size)
    assert whole[1] == size
    assert read_abbreviation(data, 0, size) == whole
    cut, behind = read_abbreviation(data, 0, size - 30)
    assert size - 30 < behind < size
    assert cut != whole[0]
