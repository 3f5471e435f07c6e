"""Resolve the operands of the instructions of a bitcode function.

Value numbers are consecutive: globals, constants of the module, then for each function its parameters,
its constants and the results of its instructions. Operands are relative to the next value number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain, cycle

from msgspec import Struct

from mlir_offload.toolchain.bitcode.bitstream import Block, Record
from mlir_offload.toolchain.bitcode.block_reader import BlockReader
from mlir_offload.toolchain.bitcode.code import BlockId, ConstantCode, TypeCode
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction
from mlir_offload.toolchain.bitcode.module import BitcodeModule

_CALL = 34
_PHI = 16
_EXPLICIT_TYPE = 1 << 15
_FAST_MATH = 1 << 17
_NUMBER_MASK = (1 << 32) - 1
_RELATIVE_VERSION = 1


class OperandKind(IntEnum):
    """The meaning of a number in a record. PLAIN is a literal number."""

    PLAIN = 0
    VALUE = 1
    TYPE = 2
    ATTRIBUTES = 3
    METADATA = 4


Operand = tuple[OperandKind, int]


class Entry(Struct, frozen=True):
    """An instruction or a constant: its record code and its operands.

    `type` is the type ID of a constant. `number` is the value number, or None if there is no result.
    """

    code: int
    operands: tuple[Operand, ...]
    type: int | None
    number: int | None


class UnknownInstructionError(Exception):
    """An instruction or constant that this reader does not support."""


_KINDS = {
    ".": OperandKind.PLAIN,
    "t": OperandKind.TYPE,
    "a": OperandKind.VALUE,
    "m": OperandKind.METADATA,
}
_ARGUMENTS: dict[int, str] = {TypeCode.LABEL: ".", TypeCode.METADATA: "m"}

# The operands of instructions: the first operands, then the pattern that repeats for the rest.
# V: a relative value, followed by its type if it is a forward reference; v: a relative value; s: a signed
# relative value; a: an absolute value; t: a type; .: a number.
_FORMS = {
    1: ("", "."),  # DECLAREBLOCKS
    2: ("Vv", "."),  # BINOP
    3: ("Vt", "."),  # CAST
    6: ("VV", "."),  # EXTRACTELT
    7: ("VvV", "."),  # INSERTELT
    8: ("VvV", "."),  # SHUFFLEVEC
    9: ("Vv", "."),  # CMP
    10: ("V", "."),  # RET
    11: ("..v", "."),  # BR
    12: ("tv.", "a."),  # SWITCH
    15: ("", "."),  # UNREACHABLE
    _PHI: ("t", "s."),
    19: ("tta", "."),  # ALLOCA
    20: ("Vt", "."),  # LOAD
    26: ("V", "."),  # EXTRACTVAL
    27: ("VV", "."),  # INSERTVAL
    28: ("Vv", "."),  # CMP2
    29: ("VvV", "."),  # VSELECT
    33: ("", "."),  # DEBUG_LOC_AGAIN
    35: ("", "."),  # DEBUG_LOC
    36: ("", "."),  # FENCE
    41: ("Vt", "."),  # LOADATOMIC
    43: (".t", "V"),  # GEP
    44: ("VV", "."),  # STORE
    45: ("VV", "."),  # STOREATOMIC
    46: ("VVv", "."),  # CMPXCHG
    55: (".", "V"),  # OPERAND_BUNDLE
    56: ("V", "."),  # UNOP
    58: ("V", "."),  # FREEZE
    59: ("VV", "."),  # ATOMICRMW
}
# Debug locations and debug records. Their operands refer to metadata.
DEBUG_CODES = frozenset({33, 35, *range(61, 67)})
_FORMS |= dict.fromkeys(DEBUG_CODES, ("", "."))
_WITHOUT_RESULT = frozenset({1, 10, 11, 12, 15, 36, 44, 45, 55}) | DEBUG_CODES

# The same for constants, whose value operands are absolute. _PLAIN_CONSTANTS contain only numbers.
_CONSTANT_FORMS: dict[int, tuple[str, str]] = {
    ConstantCode.AGGREGATE: ("", "a"),
    10: (".aa", "."),  # CE_BINOP
    ConstantCode.CAST: (".ta", "."),
    17: ("taa", "."),  # CE_CMP
    ConstantCode.GEP_IN_RANGE_INDEX_OLD: ("t.", "ta"),
    ConstantCode.GEP_IN_RANGE: ("t....", "ta"),
    ConstantCode.GEP: ("t.", "ta"),
    27: ("ta", "."),  # DSO_LOCAL_EQUIVALENT
    29: ("ta", "."),  # NO_CFI
    30: ("t", "."),  # INLINEASM
}
_PLAIN_CONSTANTS = frozenset({2, 3, 4, 5, 6, 8, 9, 22, 26})


def function_bodies(module: BitcodeModule) -> Iterator[tuple[int, Block]]:
    """Return the value number and the body of each defined function."""
    defined = (
        number
        for number, symbol in enumerate(module.symbols)
        if isinstance(symbol, BitcodeFunction) and not symbol.is_declaration
    )
    return zip(defined, module.content.bodies, strict=False)


def read_body(module: BitcodeModule, function: int, body: Block, first: int) -> Iterator[Entry]:
    """Return the constants and instructions of a function.

    `first` is the value number of its first parameter. Raises UnknownInstructionError if an instruction is
    unknown, VerificationError if the body is malformed.
    """
    symbol = module.symbols[function]
    if module.version < _RELATIVE_VERSION or not isinstance(symbol, BitcodeFunction):
        raise UnknownInstructionError
    number = first + len(module.types.function(symbol.type).elements) - 1
    return _read_entries(module, body, number)


def _read_entries(module: BitcodeModule, body: Block, number: int) -> Iterator[Entry]:
    for item in BlockReader(module.content.stream, body):
        if isinstance(item, Record):
            entry = _instruction(module, item, number)
            yield entry
            number += entry.number is not None
        elif item.number == BlockId.CONSTANTS:
            type_number = 0
            for record in BlockReader(module.content.stream, item).records():
                if record.code == ConstantCode.SET_TYPE:
                    type_number = record.operand(0, "type")
                else:
                    yield constant_entry(record, type_number, number)
                    number += 1


def constant_entry(record: Record, type_number: int, number: int) -> Entry:
    """Return a constant with its operands. Raises UnknownInstructionError if its record code is unknown."""
    form = _CONSTANT_FORMS.get(record.code)
    if record.code in {ConstantCode.GEP_OLD, ConstantCode.INBOUNDS_GEP_OLD}:
        form = ("t" if record.count % 2 else "", "ta")
    if form is None:
        if record.code not in _PLAIN_CONSTANTS:
            raise UnknownInstructionError
        form = ("", ".")
    operands = tuple(_operands(record.values, form, number))
    return Entry(record.code, operands, type_number, number)


def _instruction(module: BitcodeModule, record: Record, number: int) -> Entry:
    if record.code == _CALL:
        return _call(module, record, number)
    form = _FORMS.get(record.code)
    if form is None:
        raise UnknownInstructionError
    values = record.values
    if record.code == _PHI and len(values) % 2 == 0:
        values = values[:-1]
    operands = tuple(_operands(values, form, number))
    return Entry(record.code, operands, None, None if record.code in _WITHOUT_RESULT else number)


def _operands(values: Sequence[int], form: tuple[str, str], number: int) -> Iterator[Operand]:
    begin, rest = form
    letters = chain(begin, cycle(rest))
    numbers = iter(values)
    for value in numbers:
        letter = next(letters)
        if letter in _KINDS:
            yield _KINDS[letter], value
        elif letter == "s":
            signed = -(value >> 1) if value & 1 else value >> 1
            yield OperandKind.VALUE, (number - signed) & _NUMBER_MASK
        else:
            absolute = (number - value) & _NUMBER_MASK
            yield OperandKind.VALUE, absolute
            if letter == "V" and absolute >= number:
                yield OperandKind.TYPE, next(numbers, 0)


def _call(module: BitcodeModule, record: Record, number: int) -> Entry:
    """Return a call. The operands are attributes, flags, optional fast-math flags, type, callee, arguments."""
    flags = record.operand(1, "calling convention")
    if not flags & _EXPLICIT_TYPE:
        raise UnknownInstructionError
    place = 3 if flags & _FAST_MATH else 2
    function = module.types.function(record.operand(place, "type of the function"))
    values = record.values
    head = [(OperandKind.PLAIN, value) for value in values[1:place]]
    callee = (number - record.operand(place + 1, "function")) & _NUMBER_MASK
    has_type = callee >= number
    arguments = values[place + 2 + has_type :]
    form = "".join(
        _ARGUMENTS.get(module.types[one].code, "v")
        for one in function.elements[1 : 1 + len(arguments)]
    )
    operands: list[Operand] = [(OperandKind.ATTRIBUTES, values[0]), *head]
    operands += [(OperandKind.TYPE, values[place]), (OperandKind.VALUE, callee)]
    operands += _operands(arguments, (form, "V"), number)
    is_void = module.types[function.elements[0]].code == TypeCode.VOID
    return Entry(record.code, tuple(operands), None, None if is_void else number)
