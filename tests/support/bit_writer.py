"""A writer of LLVM's bitstream format, for input that no tool writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Field = tuple[str, int]
_CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_ENCODINGS = {"fixed": 1, "vbr": 2, "array": 3, "char6": 4, "blob": 5}


def literal(value: int) -> tuple[Field, ...]:
    return (("literal", value),)


def fixed(width: int) -> tuple[Field, ...]:
    return (("fixed", width),)


def vbr(width: int) -> tuple[Field, ...]:
    return (("vbr", width),)


def char6() -> tuple[Field, ...]:
    return (("char6", 6),)


def blob() -> tuple[Field, ...]:
    return (("blob", 0),)


def array(element: tuple[Field, ...]) -> tuple[Field, ...]:
    return (("array", 0), *element)


class BitWriter:
    """A sequence of bits, lowest first."""

    def __init__(self) -> None:
        self.position = 0
        self._pieces: list[tuple[int, int]] = []
        self._width = 2
        self._abbreviations: list[list[Field]] = []

    def bytes(self) -> bytes:
        """Return the bytes, padded to 32 bits."""
        data = bytearray(-(-self.position // 32) * 4)
        for position, value in self._pieces:
            size = -(-(value.bit_length() + 7) // 8)
            begin = position >> 3
            number = int.from_bytes(data[begin : begin + size], "little") | value << (position & 7)
            data[begin : begin + size] = number.to_bytes(len(data[begin : begin + size]), "little")
        return bytes(data)

    def fixed(self, value: int, width: int) -> None:
        if value:
            self._pieces.append((self.position, value))
        self.position += width

    def vbr(self, value: int, width: int) -> None:
        high = 1 << (width - 1)
        while value >= high:
            self.fixed(value & (high - 1) | high, width)
            value >>= width - 1
        self.fixed(value, width)

    def align(self) -> None:
        self.position = -(-self.position // 32) * 32

    @contextmanager
    def block(
        self, number: int, width: int, inherited: Sequence[list[Field]] = ()
    ) -> Iterator[None]:
        """Write a block whose content is written in the `with` statement.

        `inherited` are the abbreviations from BLOCKINFO.
        """
        outer = self._width, self._abbreviations
        begin = self.raw_block(number, width, 0)
        self._width, self._abbreviations = width, list(inherited)
        yield
        self.fixed(0, width)
        self.align()
        self._pieces.append((begin - 32, (self.position - begin) // 32))
        self._width, self._abbreviations = outer

    def raw_block(self, number: int, width: int, words: int) -> int:
        """Write the header of a block; return the position of its content."""
        self.fixed(1, self._width)
        self.vbr(number, 8)
        self.vbr(width, 4)
        self.align()
        self.fixed(words, 32)
        return self.position

    def record(self, code: int, operands: Sequence[int]) -> None:
        self.raw_record(code, len(operands))
        for operand in operands:
            self.vbr(operand, 6)

    def raw_record(self, code: int, count: int) -> None:
        """Write the header of an unabbreviated record."""
        self.fixed(3, self._width)
        self.vbr(code, 6)
        self.vbr(count, 6)

    def define(self, *parts: tuple[Field, ...]) -> int:
        """Define an abbreviation; return its number."""
        fields = [field for part in parts for field in part]
        self.fixed(2, self._width)
        self.vbr(len(fields), 5)
        for kind, value in fields:
            self.fixed(kind == "literal", 1)
            if kind == "literal":
                self.vbr(value, 8)
                continue
            self.fixed(_ENCODINGS[kind], 3)
            if kind in {"fixed", "vbr"}:
                self.vbr(value, 5)
        self._abbreviations.append(fields)
        return 3 + len(self._abbreviations)

    def abbreviated(self, number: int, scalars: Sequence[int], rest: Sequence[int] = ()) -> None:
        """Write a record: its scalars, the code first, and then its array or blob."""
        fields = self._abbreviations[number - 4]
        self.fixed(number, self._width)
        for (kind, width), value in zip(fields, scalars, strict=False):
            self._field(kind, width, value)
        last = fields[-1]
        if last[0] == "blob":
            self.vbr(len(rest), 6)
            self.align()
            for value in rest:
                self.fixed(value, 8)
            self.align()
        elif len(fields) > 1 and fields[-2][0] == "array":
            self.vbr(len(rest), 6)
            for value in rest:
                self._field(*last, value)

    def _field(self, kind: str, width: int, value: int) -> None:
        if kind == "fixed":
            self.fixed(value, width)
        elif kind == "vbr":
            self.vbr(value, width)
        elif kind == "char6":
            self.fixed(_CHARACTERS.index(value), 6)
