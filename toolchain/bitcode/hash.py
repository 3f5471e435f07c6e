"""Hash functions, to compare the code of functions in different bitcode modules.

A hash covers the signature, attributes and instructions of a function, the constants that they use, and
the local globals that they refer to. Other globals are represented by their names. A hash does not depend
on the IDs of values, types and attributes, nor on metadata such as debug locations and optimization hints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256

from mlir_offload.toolchain.bitcode.attribute import Attribute
from mlir_offload.toolchain.bitcode.body import (
    DEBUG_CODES,
    Entry,
    Operand,
    OperandKind,
    UnknownInstructionError,
    constant_entry,
    function_bodies,
    read_body,
)
from mlir_offload.toolchain.bitcode.code import AttributeForm, TypeCode
from mlir_offload.toolchain.bitcode.constant import ConstantTable
from mlir_offload.toolchain.bitcode.global_value import BitcodeFunction, BitcodeVariable, Symbol
from mlir_offload.toolchain.bitcode.module import BitcodeModule
from mlir_offload.toolchain.bitcode.type import TypeWalk

_MAX_DEPTH = 40
_LOCAL = frozenset({"internal", "private"})
_DEBUG_INTRINSICS = "llvm.dbg."


class CodeHash:
    """The hashes of the functions of a module, computed on demand."""

    __slots__ = (
        "_active",
        "_attributes",
        "_bodies",
        "_constants",
        "_first_local",
        "_known",
        "_module",
        "_type",
    )

    def __init__(self, module: BitcodeModule, constants: ConstantTable) -> None:
        """Locate the function bodies. Nothing is hashed yet."""
        self._module = module
        self._constants = constants
        self._bodies = dict(function_bodies(module))
        self._first_local = len(module.symbols) + len(constants)
        self._known: dict[int, bytes] = {}
        self._attributes: dict[int, bytes] = {}
        self._active: set[int] = set()
        self._type = TypeWalk(module.types, self._hash_type)

    def function(self, number: int) -> str:
        """Return the hash of a function by value number; '' if it contains a construct that cannot be hashed.

        Raises VerificationError if it is malformed.
        """
        try:
            return self._once(number, self._hash_function).hex()
        except UnknownInstructionError:
            return ""

    def _once(self, number: int, compute: Callable[[int], bytes]) -> bytes:
        """Compute the hash of a value, once. A value that refers to itself has no hash."""
        found = self._known.get(number)
        if found is None:
            if number in self._active or len(self._active) > _MAX_DEPTH:
                raise UnknownInstructionError
            self._active.add(number)
            try:
                found = self._known[number] = compute(number)
            finally:
                self._active.discard(number)
        return found

    def _hash_function(self, number: int) -> bytes:
        function = self._module.symbols[number]
        body = self._bodies.get(number)
        if body is None or not isinstance(function, BitcodeFunction):
            raise UnknownInstructionError
        parts = [
            f"{function.convention} {function.section}".encode(),
            self._type(function.type),
            self._hash_attributes(function.attributes),
        ]
        digest = sha256(_joined(parts))
        parameters = self._module.types.function(function.type).elements[1:]
        names = _Locals(self, self._first_local, len(parameters))
        for entry in read_body(self._module, number, body, self._first_local):
            digest.update(names.token(entry))
        return digest.digest()

    def operand(self, operand: Operand) -> bytes:
        """Return the hash input for an operand that is not local to a function."""
        kind, number = operand
        if kind is OperandKind.TYPE:
            return self._type(number)
        if kind is OperandKind.ATTRIBUTES:
            return self._hash_attributes(number)
        if kind is not OperandKind.VALUE:
            return b"" if kind is OperandKind.METADATA else b"%d" % number
        if number < len(self._module.symbols):
            return self._symbol(number, self._module.symbols[number])
        return self._once(number, self._hash_constant)

    def is_debug_call(self, entry: Entry) -> bool:
        """Return whether an instruction calls a debug intrinsic."""
        for kind, number in entry.operands:
            if kind is OperandKind.VALUE:
                if number >= len(self._module.symbols):
                    return False
                return self._module.symbols[number].name.startswith(_DEBUG_INTRINSICS)
        return False

    def constant(self, entry: Entry, operands: Iterable[bytes]) -> bytes:
        """Return the hash of a constant, given the hash inputs of its operands."""
        of_type = b"" if entry.type is None else self._type(entry.type)
        return sha256(_joined([b"constant %d" % entry.code, of_type, *operands])).digest()

    def _hash_constant(self, number: int) -> bytes:
        record = self._constants.record(number)
        if record is None:
            raise UnknownInstructionError
        entry = constant_entry(record, self._constants.type(number), number)
        return self.constant(entry, [self.operand(one) for one in entry.operands])

    def _symbol(self, number: int, symbol: Symbol) -> bytes:
        if symbol.linkage not in _LOCAL:
            return b"@" + symbol.name.encode()
        if isinstance(symbol, BitcodeFunction):
            return self._once(number, self._hash_function)
        if isinstance(symbol, BitcodeVariable):
            return self._once(number, self._hash_variable)
        raise UnknownInstructionError

    def _hash_variable(self, number: int) -> bytes:
        variable = self._module.symbols[number]
        if not isinstance(variable, BitcodeVariable) or variable.initializer is None:
            raise UnknownInstructionError
        text = f"{variable.address_space} {variable.is_constant} {variable.align_bytes}"
        value = self.operand((OperandKind.VALUE, variable.initializer))
        return sha256(_joined([text.encode(), self._type(variable.type), value])).digest()

    def _hash_type(self, number: int) -> bytes:
        one = self._module.types[number]
        text = f"{one.code} {one.number} {one.is_scalable} {one.integers}".encode()
        # The pointee of a typed pointer is excluded: it may contain the pointer type, and its uses repeat the type.
        elements = () if one.code == TypeCode.POINTER else one.elements
        if one.code in {TypeCode.OPAQUE, TypeCode.TARGET}:
            text += one.name.encode()
        return sha256(_joined([text, *(self._type(element) for element in elements)])).digest()

    def _hash_attributes(self, number: int) -> bytes:
        if number not in self._attributes:
            texts = [
                self._attribute(place, one)
                for place, group in self._module.attributes[number].groups.items()
                for one in group.attributes.values()
            ]
            self._attributes[number] = sha256(_joined(sorted(texts))).digest()
        return self._attributes[number]

    def _attribute(self, place: int, one: Attribute) -> bytes:
        text = f"{place} {one.form} {one.kind} ".encode()
        if one.form == AttributeForm.TYPE and isinstance(one.value, int):
            return text + self._type(one.value)
        return text + str(one.value).encode()


class _Locals:
    """The hash inputs for the instructions and local values of one function."""

    __slots__ = ("_active", "_entries", "_hash", "_known", "_parameters", "_start")

    def __init__(self, code: CodeHash, start: int, parameter_count: int) -> None:
        self._hash = code
        self._start = start
        self._parameters = range(start, start + parameter_count)
        self._entries: dict[int, Entry] = {}
        self._known: dict[int, bytes] = {}
        self._active: set[int] = set()

    def token(self, entry: Entry) -> bytes:
        """Return the hash input for an entry: empty for a constant, which is hashed at its uses, and for debug info."""
        if entry.type is not None and entry.number is not None:
            self._entries[entry.number] = entry
            return b""
        if entry.code in DEBUG_CODES or self._hash.is_debug_call(entry):
            return b""
        return _joined([b"%d" % entry.code, *(self._operand(one) for one in entry.operands)])

    def _operand(self, operand: Operand) -> bytes:
        kind, number = operand
        if kind is not OperandKind.VALUE or number < self._start:
            return self._hash.operand(operand)
        if number in self._entries:
            return self._constant(number)
        if number in self._parameters:
            return b"parameter %d" % (number - self._start)
        return b"result %d" % (number - self._parameters.stop - len(self._entries))

    def _constant(self, number: int) -> bytes:
        if number not in self._known:
            if number in self._active or len(self._active) > _MAX_DEPTH:
                raise UnknownInstructionError
            self._active.add(number)
            entry = self._entries[number]
            operands = [self._operand(one) for one in entry.operands]
            self._known[number] = self._hash.constant(entry, operands)
            self._active.discard(number)
        return self._known[number]


def _joined(parts: Iterable[bytes]) -> bytes:
    """Join the parts unambiguously: the size precedes each part."""
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)
