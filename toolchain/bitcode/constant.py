"""The constants of a bitcode module: content of strings, elements of aggregates, references to globals."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from mlir_offload.toolchain.bitcode.attribute import signed
from mlir_offload.toolchain.bitcode.bitstream import Record
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import ConstantCode, TypeCode
from mlir_offload.toolchain.bitcode.global_value import Symbol
from mlir_offload.toolchain.bitcode.module import BitcodeModule

_MAX_DEPTH = 100
_MAX_KNOWN = 4096
_STRINGS = frozenset({ConstantCode.STRING, ConstantCode.C_STRING})
_GEPS_WITH_FLAGS = frozenset({ConstantCode.GEP, ConstantCode.GEP_IN_RANGE_INDEX_OLD})
_GEPS = _GEPS_WITH_FLAGS | {ConstantCode.GEP_OLD, ConstantCode.INBOUNDS_GEP_OLD}
_UNSIGNED = {8: "B", 16: "H", 32: "I", 64: "Q"}
_FLOAT_BITS: dict[int, int] = {
    TypeCode.HALF: 16,
    TypeCode.BFLOAT: 16,
    TypeCode.FLOAT: 32,
    TypeCode.DOUBLE: 64,
}


class ConstantTable:
    """The module-level constants, by value number.

    The table stores only positions. Constants are decoded on demand.
    """

    __slots__ = ("_known", "_module", "_places", "_readers", "_starts", "_types")

    def __init__(self, module: BitcodeModule) -> None:
        """Record the position and type of each constant. Raises VerificationError if a block is malformed."""
        self._module = module
        self._known: dict[int, Record] = {}
        self._places = array("Q")
        self._types = array("Q")
        self._readers: list[BlockReader] = []
        self._starts: list[int] = []
        for block in module.content.constants:
            self._pass_over(BlockReader(module.content.stream, block))

    def _pass_over(self, reader: BlockReader) -> None:
        self._readers.append(reader)
        self._starts.append(len(self._places))
        number = 0
        for record in reader.records():
            if record.code == ConstantCode.SET_TYPE:
                number = record.operand(0, "type")
            else:
                self._places.append(record.position)
                self._types.append(number)

    def __len__(self) -> int:
        """Return the number of constants."""
        return len(self._places)

    def symbol(self, value: int) -> Symbol | None:
        """Return the global that a value refers to, looking through casts and getelementptr with zero indices."""
        for _ in range(_MAX_DEPTH):
            if value < len(self._module.symbols):
                return self._module.symbols[value]
            pointer = self._pointer(self.record(value))
            if pointer is None:
                return None
            value = pointer
        return None

    def integer(self, value: int) -> int | None:
        """Return the value of an integer constant as a signed number; None for other values."""
        record = self.record(value)
        if record is None or self._module.types[self.type(value)].code != TypeCode.INTEGER:
            return None
        if record.code == ConstantCode.INTEGER:
            return signed(record.operand(0, "number"))
        return 0 if record.code == ConstantCode.NULL else None

    def is_null(self, value: int) -> bool:
        """Return whether a value is a null constant (all zero)."""
        record = self.record(value)
        return record is not None and record.code == ConstantCode.NULL

    def elements(self, value: int) -> Sequence[int] | None:
        """Return the value numbers of the elements of an aggregate; None for other constants."""
        record = self.record(value)
        if record is None or record.code != ConstantCode.AGGREGATE:
            return None
        return record.values

    def content(self, value: int) -> bytes | None:
        """Return the bytes of an array of numbers; None for other values and for null."""
        record = self.record(value)
        if record is None:
            return None
        if record.code in _STRINGS:
            return record.text() + (b"\0" if record.code == ConstantCode.C_STRING else b"")
        return self._numbers(value, record) if record.code == ConstantCode.DATA else None

    def string(self, value: int) -> str | None:
        """Return the text of a string up to the first NUL; None for other values."""
        if (
            self.record(value) is None
            or self._module.types[self.type(value)].code != TypeCode.ARRAY
        ):
            return None
        found = b"" if self.is_null(value) else self.content(value)
        return (
            None if found is None else found.partition(b"\0")[0].decode("utf-8", "backslashreplace")
        )

    def record(self, value: int) -> Record | None:
        """Return the record of a value; None for globals and for values that are not module-level."""
        place = value - len(self._module.symbols)
        if not 0 <= place < len(self._places):
            return None
        if value in self._known:
            return self._known[value]
        reader = self._readers[bisect_right(self._starts, place) - 1]
        reader.position = self._places[place]
        record = reader.next_entry()
        if not isinstance(record, Record):
            return None
        # Cached, because finding the end of a long constant is slow, and many constants may refer to it.
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[value] = record
        return record

    def type(self, value: int) -> int:
        """Return the type ID of a value that has a record."""
        return self._types[value - len(self._module.symbols)]

    def _numbers(self, value: int, record: Record) -> bytes:
        types = self._module.types
        number = self.type(value)
        elements = types[number].elements
        element = types[elements[0]] if elements else types[number]
        width = _FLOAT_BITS.get(element.code, element.number)
        kind = _UNSIGNED.get(width)
        if kind is None:
            raise types.malformed(number, "it is not of numbers that are stored in a row")
        try:
            content = array(kind, iter(record.values))
        except OverflowError as error:
            reason = "a number does not fit in its type"
            raise record.malformed(reason) from error
        if self._module.data_layout.startswith("E"):
            content.byteswap()
        return content.tobytes()

    def _pointer(self, record: Record | None) -> int | None:
        """Return the operand whose address a cast or a getelementptr with zero indices does not change."""
        if record is None:
            return None
        if record.code == ConstantCode.CAST:
            return record.operand(2, "value that is cast")
        if record.code not in _GEPS:
            return None
        values = record.values
        # The source element type (optional in old records), flags, then pairs of type and value.
        begin = 2 if record.code in _GEPS_WITH_FLAGS else len(values) % 2
        operands = list(values[begin + 1 :: 2])
        if not operands or not all(self.integer(index) == 0 for index in operands[1:]):
            return None
        return operands[0]
