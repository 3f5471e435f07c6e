"""Read the types of a bitcode module, and spell them as in textual IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

from msgspec import Struct

from mlir_offload.toolchain.bitcode.bitstream import Record
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import TypeCode
from mlir_offload.toolchain.bitcode.repeated import Content, read_repeated, records_in
from mlir_offload.toolchain.errors import VerificationError
from mlir_offload.toolchain.pattern import pattern

_Result = TypeVar("_Result")

_MAX_DEPTH = 100
_MAX_CHARACTERS = 1 << 20
_PLAIN_NAME = pattern(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*")
_WORDS = {
    TypeCode.VOID: "void",
    TypeCode.FLOAT: "float",
    TypeCode.DOUBLE: "double",
    TypeCode.LABEL: "label",
    TypeCode.HALF: "half",
    TypeCode.X86_FP80: "x86_fp80",
    TypeCode.FP128: "fp128",
    TypeCode.PPC_FP128: "ppc_fp128",
    TypeCode.METADATA: "metadata",
    TypeCode.X86_MMX: "x86_mmx",
    TypeCode.TOKEN: "token",
    TypeCode.BFLOAT: "bfloat",
    TypeCode.X86_AMX: "x86_amx",
}
# Records whose name is in the preceding STRUCT_NAME record.
_NAMED = frozenset({TypeCode.OPAQUE, TypeCode.STRUCT_NAMED, TypeCode.TARGET})


class BitcodeType(Struct, frozen=True):
    """One type of a module.

    The meaning of `number` depends on `code`: the width of an integer, the element count of an array or
    vector, the address space of a pointer, or 1 for a packed struct or a variadic function. `elements` are
    the IDs of its element types; for a function, the result type is first.
    """

    code: int
    number: int = 0
    elements: tuple[int, ...] = ()
    name: str = ""
    is_scalable: bool = False
    integers: tuple[int, ...] = ()


class TypeTable:
    """All types of a module, by type ID."""

    __slots__ = ("_characters", "_reader", "_spell", "types")

    def __init__(self, reader: BlockReader) -> None:
        """Read a TYPE block. Raises VerificationError if a record is too short."""
        self._reader = reader
        found = read_repeated(reader.stream, (reader.block,), _types_in)
        self.types = tuple(_read_types(reader.records())) if found is None else found
        self._spell = TypeWalk(self, self._spelled)
        self._characters = 0

    def __getitem__(self, number: int) -> BitcodeType:
        """Return one type. Raises VerificationError if there is none with this ID."""
        if number < len(self.types):
            return self.types[number]
        raise self.malformed(number, f"there are only {len(self.types)}")

    def function(self, number: int) -> BitcodeType:
        """Return a function type. LLVM before 4 writes a pointer to it. Raises VerificationError for another type."""
        found = self[number]
        if found.code == TypeCode.POINTER:
            found = self[found.elements[0]]
        if found.code != TypeCode.FUNCTION or not found.elements:
            raise self.malformed(number, "it is not a type of a function")
        return found

    def spell(self, number: int) -> str:
        """Return a type as in textual IR.

        Raises VerificationError if the type contains itself, or if all spelled types exceed a megabyte.
        """
        return self._spell(number)

    def malformed(self, number: int, reason: str) -> VerificationError:
        """Return an error with a type ID and the reason."""
        return self._reader.malformed(self._reader.block.begin, f"type {number}: {reason}")

    def _spelled(self, number: int) -> str:
        text = _spelled(self[number], self._spell)
        self._characters += len(text)
        if self._characters > _MAX_CHARACTERS:
            raise self.malformed(number, "the types take more than a megabyte to spell")
        return text


class TypeWalk(Generic[_Result]):
    """A cache for `compute`, which computes a property of a type from the same property of its elements."""

    __slots__ = ("_active", "_compute", "_known", "_table")

    def __init__(self, table: TypeTable, compute: Callable[[int], _Result]) -> None:
        """Create an empty cache."""
        self._table = table
        self._compute = compute
        self._known: dict[int, _Result] = {}
        self._active: set[int] = set()

    def __call__(self, number: int) -> _Result:
        """Return the result for one type. Raises VerificationError if the type contains itself."""
        if number in self._known:
            return self._known[number]
        if number in self._active or len(self._active) > _MAX_DEPTH:
            raise self._table.malformed(number, "it contains itself, or too much within it")
        self._active.add(number)
        try:
            result = self._known[number] = self._compute(number)
        finally:
            self._active.discard(number)
        return result


@lru_cache(maxsize=64)
def _types_in(contents: tuple[Content, ...]) -> tuple[BitcodeType, ...]:
    return tuple(_read_types(records_in(contents)))


def _read_types(records: Iterator[Record]) -> Iterator[BitcodeType]:
    name = ""
    for record in records:
        record.keep()
        if record.code == TypeCode.STRUCT_NAME:
            name = record.string()
        elif record.code != TypeCode.COUNT:
            yield _read_type(record, name)
            if record.code in _NAMED:
                name = ""


def _read_type(record: Record, name: str) -> BitcodeType:
    code = record.code
    if code in {TypeCode.STRUCT_ANONYMOUS, TypeCode.STRUCT_NAMED, TypeCode.FUNCTION}:
        number, elements = record.operand(0, "flag"), tuple(record.values[1:])
        return BitcodeType(code, number, elements, name if code in _NAMED else "")
    if code in {TypeCode.ARRAY, TypeCode.VECTOR}:
        is_scalable = record.count > 2 and bool(record.values[2])  # noqa: PLR2004 (its optional flag)
        element = record.operand(1, "element type")
        return BitcodeType(code, record.operand(0, "count"), (element,), "", is_scalable)
    if code == TypeCode.POINTER:
        space = record.values[1] if record.count > 1 else 0
        return BitcodeType(code, space, (record.operand(0, "element type"),))
    if code in {TypeCode.INTEGER, TypeCode.OPAQUE_POINTER}:
        return BitcodeType(code, record.operand(0, "width"))
    if code == TypeCode.TARGET:
        end = 1 + record.operand(0, "number of types")
        values = record.values
        return BitcodeType(code, 0, tuple(values[1:end]), name, integers=tuple(values[end:]))
    return BitcodeType(code, name=name if code in _NAMED else "")


def _spelled(one: BitcodeType, spell: Callable[[int], str]) -> str:
    if one.code in _WORDS:
        return _WORDS[one.code]
    if one.code == TypeCode.INTEGER:
        return f"i{one.number}"
    if one.code in {TypeCode.OPAQUE_POINTER, TypeCode.POINTER}:
        space = f" addrspace({one.number})" if one.number else ""
        return f"{spell(one.elements[0])}{space}*" if one.elements else f"ptr{space}"
    if one.code in {TypeCode.ARRAY, TypeCode.VECTOR}:
        scale = "vscale x " if one.is_scalable else ""
        text = f"{scale}{one.number} x {spell(one.elements[0])}"
        return f"[{text}]" if one.code == TypeCode.ARRAY else f"<{text}>"
    return _spelled_elements(one, spell)


def _spelled_elements(one: BitcodeType, spell: Callable[[int], str]) -> str:
    if one.name and one.code != TypeCode.TARGET:
        return f"%{quoted_name(one.name)}"
    elements = [spell(element) for element in one.elements]
    if one.code == TypeCode.TARGET:
        integers = [str(number) for number in one.integers]
        return f"target({', '.join([_quoted(one.name), *elements, *integers])})"
    if one.code in {TypeCode.STRUCT_ANONYMOUS, TypeCode.STRUCT_NAMED}:
        text = f"{{ {', '.join(elements)} }}" if elements else "{}"
        return f"<{text}>" if one.number else text
    if one.code == TypeCode.FUNCTION and elements:
        parameters = elements[1:] + (["..."] if one.number else [])
        return f"{elements[0]} ({', '.join(parameters)})"
    return "opaque" if one.code == TypeCode.OPAQUE else f"type code {one.code}"


def quoted_name(name: str) -> str:
    """Return the name of a type or symbol as in textual IR after `%` or `@`, quoted if necessary."""
    return name if _PLAIN_NAME.fullmatch(name) else _quoted(name)


def _quoted(name: str) -> str:
    characters = [
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}"  # noqa: PLR2004 (ASCII)
        for byte in name.encode()
    ]
    return f'"{"".join(characters)}"'
