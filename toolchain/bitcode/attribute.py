"""The attributes of functions and parameters in a bitcode module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct, field

from mlir_offload.toolchain.bitcode.bitstream import BitStream, Block, Record
from mlir_offload.toolchain.bitcode.block_reader import records_of
from mlir_offload.toolchain.bitcode.code import AttributeCode, AttributeForm
from mlir_offload.toolchain.bitcode.repeated import Content, read_repeated, records_in

FUNCTION_PLACE = 0xFFFFFFFF
_MAX_NATIVE_BITS = 64
_MAX_WORDS = 1 << 12

Range = tuple[int, int, int]


class Attribute(Struct, frozen=True):
    """One attribute. `kind` is its enum value, or its name if it is a string attribute.

    `value` is None for a flag, otherwise an integer, a string, a type ID (`form` TYPE), or the bit width,
    lower bound and upper bound of each range.
    """

    form: int
    kind: int | str
    value: int | str | tuple[Range, ...] | None = None


class AttributeGroup(Struct, frozen=True):
    """The attributes, by kind, of a function (`place` FUNCTION_PLACE), its result (0) or a parameter."""

    place: int
    attributes: dict[int | str, Attribute]


class AttributeList(Struct, frozen=True):
    """All attributes of one function, by place."""

    groups: dict[int, AttributeGroup] = field(default_factory=dict)

    def find(self, place: int, kind: int | str) -> Attribute | None:
        """Return the attribute of a kind at a place, or None."""
        group = self.groups.get(place)
        return group.attributes.get(kind) if group else None

    def string(self, name: str) -> str | None:
        """Return the value of a string attribute of the function: '' if it has no value, None if it is absent."""
        found = self.find(FUNCTION_PLACE, name)
        return str(found.value or "") if found else None


class AttributeTable:
    """The attribute lists of a module, by the number in its records. They are decoded on demand."""

    __slots__ = ("_groups", "_known", "_lists", "_records")

    def __init__(self, groups: Iterable[Record], lists: Iterable[Record]) -> None:
        """Store the records of PARAMATTR_GROUP and PARAMATTR blocks."""
        self._records: dict[int, Record] = {}
        self._lists: list[Record] = []
        for record in groups:
            record.keep()
            if record.code == AttributeCode.GROUP:
                self._records[record.operand(0, "number of the group")] = record
        for record in lists:
            record.keep()
            self._lists.append(record)
        self._groups: dict[int, AttributeGroup] = {}
        self._known: dict[int, AttributeList] = {}

    def __getitem__(self, number: int) -> AttributeList:
        """Return the attribute list with a number; empty if there is none.

        Raises VerificationError if an attribute in it is truncated.
        """
        if number not in self._known:
            found = []
            if 0 < number <= len(self._lists):
                record = self._lists[number - 1]
                numbers = record.values if record.code == AttributeCode.LIST else ()
                found = [self._group(group) for group in numbers if group in self._records]
            self._known[number] = AttributeList({group.place: group for group in found})
        return self._known[number]

    def groups(self) -> Iterator[AttributeGroup]:
        """Return all groups, including those that no function uses."""
        return (self._group(number) for number in self._records)

    def read_all(self) -> AttributeTable:
        """Decode all attributes and return the table itself. Raises VerificationError if one is truncated."""
        for number in range(len(self._lists) + 1):
            self[number]
        for number in self._records:
            self._group(number)
        return self

    def _group(self, number: int) -> AttributeGroup:
        if number not in self._groups:
            record = self._records[number]
            place = record.operand(1, "parameter")
            attributes = {one.kind: one for one in _read_attributes(record)}
            self._groups[number] = AttributeGroup(place, attributes)
        return self._groups[number]


def read_attributes(
    stream: BitStream, groups: tuple[Block, ...], lists: tuple[Block, ...]
) -> AttributeTable:
    """Return the attributes in the PARAMATTR_GROUP and PARAMATTR blocks of a module."""
    found = None
    if len(groups) == len(lists) == 1:
        found = read_repeated(stream, (*groups, *lists), _attributes_in)
    if found is not None:
        return found
    return AttributeTable(records_of(stream, groups), records_of(stream, lists))


@lru_cache(maxsize=64)
def _attributes_in(contents: tuple[Content, ...]) -> AttributeTable:
    groups, lists = contents
    return AttributeTable(records_in([groups]), records_in([lists])).read_all()


def _read_attributes(record: Record) -> Iterator[Attribute]:
    values = record.values
    place = 2
    try:
        while place < len(values):
            record.keep()
            attribute, place = _read_attribute(values, place)
            yield attribute
    except (IndexError, ValueError) as error:
        reason = f"the attribute at operand {place} is cut off"
        raise record.malformed(reason) from error


def _read_attribute(values: Sequence[int], place: int) -> tuple[Attribute, int]:
    form = values[place]
    if form in {AttributeForm.STRING, AttributeForm.STRING_VALUE}:
        name, place = _read_string(values, place + 1)
        value = None
        if form == AttributeForm.STRING_VALUE:
            value, place = _read_string(values, place)
        return Attribute(form, name, value), place
    kind = values[place + 1]
    if form in {AttributeForm.FLAG, AttributeForm.TYPE_FLAG}:
        return Attribute(form, kind), place + 2
    if form in {AttributeForm.INTEGER, AttributeForm.TYPE}:
        return Attribute(form, kind, values[place + 2]), place + 3
    if form in {AttributeForm.RANGE, AttributeForm.RANGES}:
        return _read_ranges(values, place)
    # A form that a later release added. Its length is unknown, so the rest of the group is skipped.
    return Attribute(form, kind), len(values)


def _read_string(values: Sequence[int], begin: int) -> tuple[str, int]:
    end = values.index(0, begin)
    return bytes(iter(values[begin:end])).decode("utf-8", "backslashreplace"), end + 1


def _read_ranges(values: Sequence[int], place: int) -> tuple[Attribute, int]:
    form, kind, count = values[place], values[place + 1], 1
    place += 2
    if form == AttributeForm.RANGES:
        count, place = values[place], place + 1
    bits, place = values[place], place + 1
    ranges: list[Range] = []
    while len(ranges) < count:
        bounds, place = _read_range(values, place, bits)
        ranges.append((bits, *bounds))
    return Attribute(form, kind, tuple(ranges)), place


def _read_range(values: Sequence[int], place: int, bits: int) -> tuple[tuple[int, int], int]:
    if bits <= _MAX_NATIVE_BITS:
        return (signed(values[place]), signed(values[place + 1])), place + 2
    # One operand contains the word counts of both bounds.
    lower, upper = values[place] & 0xFFFFFFFF, values[place] >> 32
    middle, end = place + 1 + lower, place + 1 + lower + upper
    if end > len(values) or lower + upper > _MAX_WORDS:
        raise IndexError
    return (_wide(values[place + 1 : middle]), _wide(values[middle:end])), end


def _wide(words: Sequence[int]) -> int:
    return sum(signed(word) << 64 * place for place, word in enumerate(words))


def signed(value: int) -> int:
    """Decode a sign-rotated VBR: the lowest bit is the sign, and 1 represents -2^63."""
    if not value & 1:
        return value >> 1
    return -(value >> 1) if value != 1 else -1 << 63
