"""Convert the results of compiled functions, as the C wrappers of MLIR return them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from mlir_offload.offload.interface.call_memref import Returned
from mlir_offload.offload.interface.call_scalar import result_type, take_bytes, take_register
from mlir_offload.offload.interface.type import (
    InterfaceType,
    MemrefType,
    ScalarType,
    TokenType,
    UnrankedType,
)

_WORD_BYTES = 8


def is_in_memory(results: Sequence[InterfaceType]) -> bool:
    """Return whether the wrapper writes the results to memory that its first argument points to."""
    if len(results) != 1:
        return bool(results)
    only = results[0]
    return isinstance(only, MemrefType | UnrankedType) or (
        isinstance(only, ScalarType) and only.element.is_complex
    )


def register_type(results: Sequence[InterfaceType]) -> type[Any] | None:
    """Return the ctypes type of a result in a register; None if there is no result."""
    if not results:
        return None
    only = results[0]
    return result_type(only.element) if isinstance(only, ScalarType) else ctypes.c_void_p


def from_register(results: Sequence[InterfaceType], value: Any) -> object:
    """Return the result that was returned in a register."""
    if not results or isinstance(results[0], TokenType):
        return value or 0 if results else None
    only = results[0]
    return take_register(only.element, value) if isinstance(only, ScalarType) else value


def memory_words(results: Sequence[InterfaceType]) -> int:
    """Return the size of the struct of all results, in 64-bit words."""
    return _layout(results)[1]


def _layout(results: Sequence[InterfaceType]) -> tuple[list[int], int]:
    """Return the byte offset of each result in the struct of all results, and its size in words."""
    offsets, end = [], 0
    for item in results:
        size, alignment = _extent(item)
        end = -(-end // alignment) * alignment
        offsets.append(end)
        end += size
    return offsets, -(-end // _WORD_BYTES)


def _extent(item: InterfaceType) -> tuple[int, int]:
    match item:
        case ScalarType():
            size = item.element.size_bytes
            return size, size // 2 if item.element.is_complex else size
        case MemrefType():
            return (3 + 2 * item.rank) * _WORD_BYTES, _WORD_BYTES
        case UnrankedType():
            return 2 * _WORD_BYTES, _WORD_BYTES
        case _:
            return _WORD_BYTES, _WORD_BYTES


def from_memory(results: Sequence[InterfaceType], content: bytes, returned: Returned) -> Any:
    """Return the result, or a tuple of results, that a wrapper wrote to memory."""
    offsets, _ = _layout(results)
    values = []
    for item, offset in zip(results, offsets, strict=True):
        part = content[offset : offset + _extent(item)[0]]
        words = memoryview(part).cast("q").tolist() if len(part) % _WORD_BYTES == 0 else []
        match item:
            case ScalarType():
                values.append(take_bytes(item.element, part))
            case MemrefType():
                values.append(returned.take(item.element, item.rank, words))
            case UnrankedType():
                values.append(returned.take_unranked(item.element, *words))
            case _:
                values.append(words[0])
    return values[0] if len(values) == 1 else tuple(values)
