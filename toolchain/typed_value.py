"""Plain data and JSON as values of Struct types, in any thread."""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")

# With the first value of a type msgspec 0.22 reads the annotations, which runs Python code, and remembers
# the half-read type meanwhile: a second thread that converts to it then ends with a segmentation fault.
_READING = threading.Lock()


def converted(value: object, kind: type[T]) -> T:
    """Return plain data as the type, without changing values. Raises msgspec.ValidationError."""
    with _READING:
        return msgspec.convert(value, kind, strict=True)


def decoded(text: str | bytes, kind: type[T]) -> T:
    """Return JSON as the type. Raises msgspec.DecodeError, RecursionError for a text nested too deep."""
    with _READING:
        return msgspec.json.decode(text, type=kind)
