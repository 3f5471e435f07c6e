"""Convert numbers and streams between Python and MLIR, for the C wrappers on x86-64 and AArch64."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from mlir_offload.offload.interface.call_memref import ArgumentTypeError, ArgumentValueError
from mlir_offload.offload.interface.float8 import encode_float8, float8_values
from mlir_offload.offload.interface.type import Element, ScalarType

_INTEGERS: dict[int, type[Any]] = {
    1: ctypes.c_int8,
    2: ctypes.c_int16,
    4: ctypes.c_int32,
    8: ctypes.c_int64,
}
_UNSIGNED: dict[int, type[Any]] = {1: ctypes.c_uint8, 4: ctypes.c_uint32, 8: ctypes.c_uint64}
_FLOATS: dict[int, type[Any]] = {4: ctypes.c_float, 8: ctypes.c_double}
_FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d", "complex<f32>": "<2f", "complex<f64>": "<2d"}
_INTEGER_LETTERS = {1: "b", 2: "h", 4: "i", 8: "q"}


class RawFloat(ctypes.c_float):
    """A vector register with a 16-bit float in its low half; ctypes returns subclasses unconverted."""


def pass_scalar(scalar: ScalarType, value: object, where: str) -> list[Any]:
    """Return the ctypes values that pass a number to a C function.

    Raises ArgumentTypeError or ArgumentValueError if the type cannot represent the value.
    """
    element = scalar.element
    number = _plain(value)
    if element.is_complex:
        if not isinstance(number, int | float | complex):
            raise _wrong_type(scalar, value, where)
        part = _FLOATS[element.size_bytes // 2]
        pair = complex(number)
        return [part(pair.real), part(pair.imag)]
    if element.kinds in {"f", "V"}:
        if not isinstance(number, int | float):
            raise _wrong_type(scalar, value, where)
        return [_float(element, float(number), where)]
    if not isinstance(number, int) or (element.kinds == "b" and number not in {0, 1}):
        raise _wrong_type(scalar, value, where)
    return [_integer(element, int(number), where)]


def _plain(value: object) -> object:
    """Return the Python number of a NumPy scalar, and other values unchanged."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _integer(element: Element, number: int, where: str) -> Any:
    bits = 8 * element.size_bytes
    lowest = 0 if element.kinds in {"u", "b"} else -(1 << (bits - 1))
    highest = (1 << (bits - 1)) - 1 if element.kinds == "i" else (1 << bits) - 1
    if not lowest <= number <= highest:
        msg = f"{where} is {element.spelling}: {number} is not from {lowest} to {highest}"
        raise ArgumentValueError(msg)
    return _INTEGERS[element.size_bytes](number)


def _float(element: Element, number: float, where: str) -> Any:
    if element.size_bytes in _FLOATS:
        return _FLOATS[element.size_bytes](number)
    try:
        if element.size_bytes == 1:
            return ctypes.c_uint8(encode_float8(element.spelling, number))
        bits = _bfloat16_bits(number) if element.kinds == "V" else struct.pack("<e", number)
    except OverflowError as error:
        msg = f"{where} is {element.spelling}: {number} is too large or too small"
        raise ArgumentValueError(msg) from error
    return RawFloat.from_buffer_copy(bits + b"\0\0")


def _bfloat16_bits(number: float) -> bytes:
    """Return the upper half of the float, rounded to nearest, ties to even."""
    bits = int.from_bytes(struct.pack("<f", number), "little")
    if number == number:  # noqa: PLR0124 (a NaN must not be rounded to infinity)
        bits += 0x7FFF + (bits >> 16 & 1)
    return (bits >> 16 & 0xFFFF).to_bytes(2, "little")


def _wrong_type(scalar: ScalarType, value: object, where: str) -> ArgumentTypeError:
    msg = f"{where} is {scalar.spelling}, not {type(value).__name__}"
    return ArgumentTypeError(msg, hint="pass a number")


def result_type(element: Element) -> type[Any]:
    """Return the ctypes type of a number that is returned in a register."""
    if element.kinds in {"f", "V"} and element.size_bytes > 1:
        return _FLOATS.get(element.size_bytes, RawFloat)
    integers = _UNSIGNED if element.kinds in {"u", "V"} else _INTEGERS
    return integers[element.size_bytes]


def take_register(element: Element, value: Any) -> object:
    """Return the number that was returned in a register."""
    if isinstance(value, RawFloat):
        return take_bytes(element, bytes(value)[:2])
    if element.kinds == "V":
        return take_bytes(element, bytes([value & 0xFF]))
    return bool(value & 1) if element.kinds == "b" else value


def take_bytes(element: Element, content: bytes) -> object:
    """Return the number that is stored in memory."""
    if element.kinds == "V" and element.size_bytes == 1:
        return float8_values(element.spelling)[content[0]]
    if element.kinds == "V":
        return struct.unpack("<f", b"\0\0" + content)[0]
    if element.spelling in _FORMATS:
        parts: Sequence[float] = struct.unpack(_FORMATS[element.spelling], content)
        return complex(*parts) if element.is_complex else parts[0]
    if element.kinds == "b":
        return bool(content[0] & 1)
    letter = _INTEGER_LETTERS[element.size_bytes]
    return struct.unpack("<" + (letter.upper() if element.kinds == "u" else letter), content)[0]


def stream_handle(stream: object, where: str) -> int:
    """Return the address of a stream: a number, or a stream object of CuPy, PyTorch or cuda.core."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol):
        return int(protocol()[1])
    if isinstance(stream, ctypes.c_void_p):
        return stream.value or 0
    for attribute in ("cuda_stream", "ptr"):
        found = getattr(stream, attribute, None)
        if isinstance(found, int):
            return found
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    msg = f"{where} is a stream, not {type(stream).__name__}"
    raise ArgumentTypeError(msg, hint="pass a cudaStream_t as a number, or a stream object")
