"""The functions that a file exports to callers in C and Python, and their storage in objects.

An object stores them as JSON in a separate section. Linkers concatenate sections of the same name, so each
text ends with a NUL, and a linked file contains the texts of all its objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from mlir_offload.offload.elf import ElfFile, ElfSection
from mlir_offload.offload.interface.type import (
    InexpressibleType,
    InterfaceType,
    parse_interface_type,
)

INTERFACE_SECTION = ".mlir_offload.interface"
INTERFACE_GLOBAL = "mlir_offload.interface"
_VERSION = 1
_SYMBOL_PREFIX = "_mlir_ciface_"
_LONGEST_BYTES = 1 << 26
_SMALL_RESULTS = frozenset({"si8", "ui8", "si16", "ui16"})


class InterfaceArgument(Struct, frozen=True):
    """An argument: its name in the program, and its type."""

    name: str
    type: InterfaceType


class InterfaceFunction(Struct, frozen=True):
    """A function with `llvm.emit_c_interface`."""

    name: str
    arguments: tuple[InterfaceArgument, ...]
    results: tuple[InterfaceType, ...]

    @property
    def symbol(self) -> str:
        """Return the symbol of its C wrapper."""
        return _SYMBOL_PREFIX + self.name

    @property
    def signature(self) -> str:
        """Return the declaration in MLIR's notation, with the names of the arguments."""
        arguments = ", ".join(f"{item.name}: {item.type.spelling}" for item in self.arguments)
        results = ", ".join(item.spelling for item in self.results)
        arrow = f" -> {results}" if len(self.results) == 1 else f" -> ({results})"
        return f"{self.name}({arguments})" + (arrow if self.results else "")

    @property
    def problem(self) -> str:
        """Return why the function cannot be called from C or Python; empty if it can."""
        for item in self.arguments:
            if isinstance(item.type, InexpressibleType):
                return f"argument {item.name} has type {item.type.spelling}"
        for number, result in enumerate(self.results):
            # The C wrapper does not specify whether it sign-extends or zero-extends small results.
            if isinstance(result, InexpressibleType) or result.spelling in _SMALL_RESULTS:
                return f"result {number} has type {result.spelling}"
        return ""


def serialize_interface(functions: Iterable[InterfaceFunction]) -> str:
    """Return the functions as the JSON that objects store."""
    rows = [
        {
            "name": function.name,
            "arguments": [
                {"name": item.name, "type": item.type.spelling} for item in function.arguments
            ],
            "results": [item.spelling for item in function.results],
        }
        for function in functions
    ]
    return json.dumps({"version": _VERSION, "functions": rows}, separators=(",", ":"))


def read_interface(elf: ElfFile) -> tuple[InterfaceFunction, ...]:
    """Return the functions of all objects that a file was linked from, in order.

    Raises VerificationError if the section is corrupt, or was written by a later release of this tool.
    """
    return tuple(
        function for section in elf.named(INTERFACE_SECTION) for function in _read(elf, section)
    )


def _read(elf: ElfFile, section: ElfSection) -> Iterator[InterfaceFunction]:
    view = elf.content(section, form="interface")
    if view.size > _LONGEST_BYTES:
        raise view.malformed(0, "size", f"{view.size} bytes are too many")
    offset = 0
    for text in view.whole().split(b"\0"):
        if text:
            try:
                yield from parse_interface(text)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise view.malformed(offset, "functions", "invalid JSON or types") from error
        offset += len(text) + 1


def parse_interface(text: bytes) -> list[InterfaceFunction]:
    """Read the output of `serialize_interface`. Raises ValueError, TypeError or KeyError."""
    table = json.loads(text)
    if table["version"] != _VERSION:
        msg = f"version {table['version']}"
        raise ValueError(msg)
    return [
        InterfaceFunction(
            _text(row["name"]),
            tuple(_argument(item) for item in row["arguments"]),
            tuple(parse_interface_type(_text(item)) for item in row["results"]),
        )
        for row in table["functions"]
    ]


def _argument(row: Mapping[str, object]) -> InterfaceArgument:
    name = _text(row["name"])
    if not name.isidentifier():
        msg = f"argument '{name}'"
        raise ValueError(msg)
    return InterfaceArgument(name, parse_interface_type(_text(row["type"])))


def _text(value: object) -> str:
    if not isinstance(value, str):
        msg = "no text"
        raise TypeError(msg)
    return value
