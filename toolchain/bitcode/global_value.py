"""Decode the functions, variables and aliases of a bitcode module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.bitcode.bit_array import vbr
from mlir_offload.toolchain.bitcode.bitstream import USUAL_CHUNK, WORD, BitStream, Block, Record
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import ModuleCode, TypeCode
from mlir_offload.toolchain.bitcode.type import TypeTable
from mlir_offload.toolchain.tables import load_table

# The names in textual IR, indexed by the enum value in records. Several values are obsolete.
_LINKAGES = (
    *("external", "weak", "appending", "internal", "linkonce", "external", "external"),
    *("extern_weak", "common", "private", "weak_odr", "linkonce_odr", "available_externally"),
    *("private", "private", "external", "weak", "weak_odr", "linkonce", "linkonce_odr"),
)
_VISIBILITIES = ("default", "hidden", "protected")
_MAX_ALIGN_LOG = 33
_EXPLICIT_TYPE = 2
# The operand of a function with its section, after the name.
_SECTION_PLACE = 6
# The start of a string table as LLVM writes it: the definition of an abbreviation with a blob, and its number.
_STRINGS_WIDTH, _STRINGS, _STRINGS_MASK, _SIZE_BITS = 3, 0x940312, 0xFFFFFF, 36
# From this module version on (LLVM 5), the file contains a string table for names.
STRING_TABLE_VERSION = 2


class BitcodeFunction(Struct, frozen=True):
    """A function. `type` and `attributes` are indices of the type table and the attribute lists of the module.

    `linkage` and `visibility` are spelled as in textual IR.
    """

    name: str
    type: int
    calling_convention: int
    linkage: str
    visibility: str
    section: str
    is_declaration: bool
    attributes: int

    @property
    def convention(self) -> str:
        """Return the calling convention as in textual IR."""
        return load_conventions().names.get(
            self.calling_convention, f"cc {self.calling_convention}"
        )

    @property
    def has_kernel_convention(self) -> bool:
        """Return whether the calling convention is that of kernels, which a host launches."""
        return self.convention in load_conventions().kernels

    @property
    def is_intrinsic(self) -> bool:
        """Return whether the function is an LLVM intrinsic."""
        return self.name.startswith("llvm.")


class BitcodeVariable(Struct, frozen=True):
    """A global variable. `initializer` is a value number, or None for a declaration."""

    name: str
    type: int
    address_space: int
    is_constant: bool
    linkage: str
    visibility: str
    section: str
    align_bytes: int
    initializer: int | None


class BitcodeAlias(Struct, frozen=True):
    """An alias or ifunc. `target` is the value number of the aliasee or of the resolver."""

    name: str
    type: int
    address_space: int
    linkage: str
    visibility: str
    target: int


Symbol = BitcodeFunction | BitcodeVariable | BitcodeAlias


class Conventions(Struct, frozen=True):
    """The names of calling conventions by enum value, and the names of the kernel conventions."""

    names: Mapping[int, str]
    kernels: frozenset[str]


@cache
def load_conventions() -> Conventions:
    """Return the table that ships with the package."""
    return parse_conventions(load_table("mlir_offload.toolchain", "bitcode"))


def parse_conventions(table: Mapping[str, Any]) -> Conventions:
    """Return the verified table. Raises ValueError with the reason if a row is invalid."""
    rows = table["calling_conventions"]
    names = {int(row["number"]): str(row["name"]) for row in rows}
    kernels = frozenset(str(name) for name in table["kernels"])
    if len(names) != len(rows) or len(set(names.values())) != len(rows):
        msg = "bitcode: a calling convention is listed twice"
        raise ValueError(msg)
    if strangers := kernels - set(names.values()):
        msg = f"bitcode: {sorted(strangers)} are not calling conventions"
        raise ValueError(msg)
    return Conventions(names, kernels)


class StringTable:
    """The string table of a file. Each name of its modules is a substring."""

    __slots__ = ("_known", "_left", "_strings")

    def __init__(self, strings: bytes) -> None:
        """Store the string."""
        self._strings = strings
        self._known: dict[tuple[int, int], str] = {}
        # A limit, because the total size of overlapping names is unbounded. LLVM's writer does not repeat names.
        self._left = 2 * len(strings)

    def piece(self, record: Record) -> str:
        """Return the name of a record, whose first two operands are its offset and size."""
        place = (record.operand(0, "offset of the name"), record.operand(1, "size of the name"))
        name = self._known.get(place)
        if name is None:
            begin, size = place
            self._left -= size
            if begin + size > len(self._strings) or self._left < 0:
                reason = f"its name, {size} bytes at {begin}, is not in the string table"
                raise record.malformed(reason)
            name = self._strings[begin : begin + size].decode("utf-8", "backslashreplace")
            self._known[place] = name
        return name


def read_strings(stream: BitStream, block: Block | None) -> bytes:
    """Return the content of a STRTAB block; empty if there is none."""
    if block is None:
        return b""
    usual = _usual_strings(stream, block)
    if usual is not None:
        return usual
    for entry in BlockReader(stream, block):
        if isinstance(entry, Record):
            return entry.text()
    return b""


def _usual_strings(stream: BitStream, block: Block) -> bytes | None:
    """Return the bytes of a string table that is written as LLVM does; None if it is not."""
    if block.width != _STRINGS_WIDTH or block.inherited or block.begin + 8 * WORD.size > block.end:
        return None
    (word,) = WORD.unpack_from(stream.data, block.begin >> 3)
    count, used = vbr(word >> _STRINGS_MASK.bit_length(), USUAL_CHUNK)
    if word & _STRINGS_MASK != _STRINGS or used > _SIZE_BITS:
        return None
    behind = block.begin + _STRINGS_MASK.bit_length() + used
    begin = -(-behind // 32) * 4
    return stream.data[begin : begin + count] if 8 * (begin + count) <= block.end else None


class GlobalReader(Struct, frozen=True):
    """Decode the records of globals. The fields are the tables that these records refer to."""

    version: int
    types: TypeTable
    sections: Sequence[str]
    names: StringTable

    def read(self, record: Record) -> Symbol:
        """Return the global of a record. Its name is '' if the module has its own symbol table (LLVM 4 and older)."""
        name, values = "", record.values
        if self.version >= STRING_TABLE_VERSION:
            name, values = self.names.piece(record), values[2:]
        fields = _Fields(record, values)
        if record.code == ModuleCode.FUNCTION:
            return self._function(name, fields)
        if record.code == ModuleCode.GLOBAL_VARIABLE:
            return self._variable(name, fields)
        return _alias(name, fields)

    def _function(self, name: str, fields: _Fields) -> BitcodeFunction:
        values = fields.values
        if len(values) > _SECTION_PLACE and not values[_SECTION_PLACE]:
            # Nearly all functions: nothing is missing, and there is no section.
            return BitcodeFunction(
                name,
                values[0],
                values[1],
                _linkage(values[3]),
                _visibility(fields.optional(7)),
                "",
                bool(values[2]),
                values[4],
            )
        return BitcodeFunction(
            name,
            type=fields.required(0, "type"),
            calling_convention=fields.required(1, "calling convention"),
            linkage=_linkage(fields.required(3, "linkage")),
            visibility=_visibility(fields.optional(7)),
            section=self._section(fields, _SECTION_PLACE),
            is_declaration=bool(fields.required(2, "declaration")),
            attributes=fields.required(4, "attributes"),
        )

    def _variable(self, name: str, fields: _Fields) -> BitcodeVariable:
        flags = fields.required(1, "flags")
        number, space = fields.required(0, "type"), flags >> 2
        if not flags & _EXPLICIT_TYPE:
            pointer = self.types[number]
            if pointer.code != TypeCode.POINTER:
                raise self.types.malformed(number, "it is not a pointer, as that of a variable is")
            number, space = pointer.elements[0], pointer.number
        initializer = fields.required(2, "initialiser")
        return BitcodeVariable(
            name,
            type=number,
            address_space=space,
            is_constant=bool(flags & 1),
            linkage=_linkage(fields.required(3, "linkage")),
            visibility=_visibility(fields.optional(6)),
            section=self._section(fields, 5),
            align_bytes=(1 << min(fields.optional(4), _MAX_ALIGN_LOG)) >> 1,
            initializer=initializer - 1 if initializer else None,
        )

    def _section(self, fields: _Fields, place: int) -> str:
        number = fields.optional(place)
        if number > len(self.sections):
            reason = f"there is no section {number}"
            raise fields.record.malformed(reason)
        return self.sections[number - 1] if number else ""


class _Fields(Struct, frozen=True):
    """The operands of a record after its name. Later releases append operands."""

    record: Record
    values: Sequence[int]

    def required(self, place: int, field: str) -> int:
        if place < len(self.values):
            return self.values[place]
        reason = f"it has no {field}"
        raise self.record.malformed(reason)

    def optional(self, place: int) -> int:
        return self.values[place] if place < len(self.values) else 0


def _alias(name: str, fields: _Fields) -> BitcodeAlias:
    # LLVM before 4 writes a pointer type instead of the type and the address space.
    is_old = fields.record.code == ModuleCode.ALIAS_OLD
    place = 1 if is_old else 2
    return BitcodeAlias(
        name,
        type=fields.required(0, "type"),
        address_space=0 if is_old else fields.required(1, "address space"),
        linkage=_linkage(fields.required(place + 1, "linkage")),
        visibility=_visibility(fields.optional(place + 2)),
        target=fields.required(place, "target"),
    )


def _linkage(number: int) -> str:
    return _LINKAGES[number] if number < len(_LINKAGES) else _LINKAGES[0]


def _visibility(number: int) -> str:
    return _VISIBILITIES[number] if number < len(_VISIBILITIES) else _VISIBILITIES[0]
