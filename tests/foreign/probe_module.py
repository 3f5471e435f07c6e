"""Bitcode modules with one record each that a reader may not support; no LLVM release writes them.

They are of version 1, whose functions need no names, and have typed pointers, which all readers accept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from support.bit_writer import BitWriter

_MAGIC = 0xDEC04342
_PRODUCER = b"LLVM22.1.8"
_ANY_FUNCTION = 0xFFFFFFFF
# The data after the kind in each form of attribute: nothing, a number, a type, a range, ranges.
_FORM_VALUES: dict[int, tuple[int, ...]] = {1: (1,), 6: (0,), 7: (32, 0, 8), 8: (1, 32, 0, 8)}
_MEMORY = 86
FORMS = (0, 1, 5, 6, 7, 8)
# The types defined below, by index.
_I32, _I64, _FLOAT, _VOID, _I32_POINTER, _FLOAT_POINTER, _SIGNATURE, _ATOMIC = range(8)


def _types(writer: BitWriter) -> None:
    records: tuple[tuple[int, tuple[int, ...]], ...] = (
        (7, (32,)),
        (7, (64,)),
        (3, ()),
        (2, ()),
        (8, (_I32, 0)),
        (8, (_FLOAT, 0)),
        (21, (0, _VOID)),
        (21, (0, _VOID, _I32_POINTER, _I32, _FLOAT_POINTER, _FLOAT)),
    )
    with writer.block(17, 4):
        writer.record(1, (len(records),))
        for code, operands in records:
            writer.record(code, operands)


def _module(fill: Callable[[BitWriter], None]) -> bytes:
    writer = BitWriter()
    writer.fixed(_MAGIC, 32)
    with writer.block(13, 5):
        writer.record(1, _PRODUCER)
        writer.record(2, (0,))
    with writer.block(8, 3):
        writer.record(1, (1,))
        fill(writer)
    return writer.bytes()


def _function(writer: BitWriter, signature: int, *, convention: int = 0, is_declared: bool) -> None:
    writer.record(8, (signature, convention, is_declared, 0, 0, 0, 0, 0))


def attribute_module(kind: int, form: int) -> bytes:
    """Return a module with an unused attribute of a kind in a form."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        _attribute(writer, form, kind, *_FORM_VALUES.get(form, ()))

    return _module(fill)


def attributed_module(kind: int, form: int) -> bytes:
    """Return a module with a function that has that attribute, valid or not."""
    return _attributed(form, kind, *_FORM_VALUES.get(form, ()))


def memory_module(word: int) -> bytes:
    """Return a module that declares a function with this encoding of memory(...)."""
    return _attributed(1, _MEMORY, word)


def _attribute(writer: BitWriter, *attribute: int) -> None:
    with writer.block(10, 3):
        writer.record(3, (1, _ANY_FUNCTION, *attribute))
    with writer.block(9, 3):
        writer.record(2, (1,))


def _attributed(*attribute: int) -> bytes:
    def fill(writer: BitWriter) -> None:
        _types(writer)
        _attribute(writer, *attribute)
        writer.record(8, (_SIGNATURE, 0, 1, 0, 1, 0, 0, 0))

    return _module(fill)


def type_module(code: int) -> bytes:
    """Return a module with a type of this code, with one operand like opaque pointers."""

    def fill(writer: BitWriter) -> None:
        with writer.block(17, 4):
            writer.record(1, (1,))
            writer.record(code, (0,))

    return _module(fill)


def constant_module(code: int, operands: Sequence[int] = ()) -> bytes:
    """Return a module with an i32 constant of this code, by default without operands."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        with writer.block(11, 4):
            writer.record(1, (_I32,))
            writer.record(code, operands)

    return _module(fill)


def wide_integer_module(bits: int, operand: int) -> bytes:
    """Return a module with a global variable of a wide integer type, whose value is in one operand."""

    def fill(writer: BitWriter) -> None:
        with writer.block(17, 4):
            writer.record(1, (1,))
            writer.record(7, (bits,))
        # The type, constant with an explicit type, the initializer after the variable itself, external.
        writer.record(7, (0, 3, 2, 0, 0, 0))
        with writer.block(11, 4):
            writer.record(1, (0,))
            writer.record(4, (operand,))

    return _module(fill)


def cast_module(opcode: int) -> bytes:
    """Return a module with a constant cast from a nonexistent type."""
    return constant_module(11, (opcode, 99, 0))


def metadata_module(code: int, count: int) -> bytes:
    """Return a module with a metadata node of that many zeros."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        with writer.block(15, 4):
            writer.record(code, (0,) * count)

    return _module(fill)


def instruction_module(code: int) -> bytes:
    """Return a module with an instruction of this code, without operands."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        _function(writer, _SIGNATURE, is_declared=False)
        with writer.block(12, 5):
            writer.record(1, (1,))
            writer.record(code, ())
            writer.record(10, ())

    return _module(fill)


def cast_flag_module() -> bytes:
    """Return a module with a zext of i32 that has a flag."""
    return _with_instruction(3, (3, _I64, 1, 1))


def compare_flag_module() -> bytes:
    """Return a module with an icmp eq of i32 that has a flag."""
    return _with_instruction(28, (3, 3, 32, 1))


def element_flag_module() -> bytes:
    """Return a module with a getelementptr that has a flag other than inbounds."""
    return _with_instruction(43, (4, _I32, 4, 3))


def _with_instruction(code: int, operands: Sequence[int]) -> bytes:
    """Return a module with an instruction; relative operand 4 is a pointer to i32, and 3 an i32."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        _function(writer, _ATOMIC, is_declared=False)
        with writer.block(12, 5):
            writer.record(1, (1,))
            writer.record(code, operands)
            writer.record(10, ())

    return _module(fill)


def atomic_module(operation: int, *, is_float: bool) -> bytes:
    """Return a module with an atomicrmw of this operation on i32 or on float."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        _function(writer, _ATOMIC, is_declared=False)
        with writer.block(12, 5):
            writer.record(1, (1,))
            # The parameters are numbered 1 to 4, after the function; the next value is 5.
            pointer, value = (2, 1) if is_float else (4, 3)
            writer.record(59, (pointer, value, operation, 0, 2, 1, 3))
            writer.record(10, ())

    return _module(fill)


def summary_module(version: int) -> bytes:
    """Return a module with an empty ThinLTO summary of this version."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        with writer.block(20, 4):
            writer.record(10, (version,))
            writer.record(20, (1,))

    return _module(fill)


def convention_module(conventions: Sequence[int]) -> bytes:
    """Return a module that declares a function of each calling convention."""

    def fill(writer: BitWriter) -> None:
        _types(writer)
        for number in conventions:
            _function(writer, _SIGNATURE, convention=number, is_declared=True)

    return _module(fill)
