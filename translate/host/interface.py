"""The functions of a program that callers in C and Python may use: `llvm.emit_c_interface`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from msgspec import Struct

from mlir_offload.offload.interface.c_header import HeaderFunction, render_header
from mlir_offload.offload.interface.function import (
    InterfaceArgument,
    InterfaceFunction,
    serialize_interface,
)
from mlir_offload.offload.interface.type import parse_interface_type
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import (
    Locations,
    ModuleText,
    OperationText,
    function_type,
    parse_module,
    read_locations,
    symbol_name,
)

_ATTRIBUTE = re.compile(r"\bllvm\.emit_c_interface\b")
_ALIAS = re.compile(r"^([#!]\w+) = (.*)$")
_ALIAS_USE = re.compile(r"[#!]\w+\b(?![.<])")
_SOURCE_NAME = re.compile(r"%([A-Za-z_]\w*)")
_LINE_AND_COLUMN = re.compile(r"(.*):(\d+):(\d+)")


class DeclaredFunction(Struct, frozen=True):
    """A function of the interface, where it stands, and whether C has to define it."""

    function: InterfaceFunction
    location: str
    is_external: bool


def read_declared_functions(module: ModuleText, source_text: str) -> tuple[DeclaredFunction, ...]:
    """Return the functions of a normalised program that have a C wrapper, in their order.

    Arguments bear the names that they have in the text of the source, where that can be told.
    """
    wanted = [
        op
        for op in module.operations
        if op.name == "func.func" and MLIR.search(_ATTRIBUTE, op.attributes)
    ]
    if not wanted:
        return ()
    lines = (*module.aliases, *module.tail)
    locations = read_locations(lines)
    aliases = {match[1]: match[2] for line in lines if (match := _ALIAS.match(line))}
    source = source_text.split("\n")
    return tuple(_declared(op, aliases, locations, source) for op in wanted)


def interface_of(module: ModuleText, source_text: str) -> str:
    """Return the JSON of the functions that the program defines for callers; empty where it has none."""
    declared = read_declared_functions(module, source_text)
    defined = [item.function for item in declared if not item.is_external]
    return serialize_interface(defined) if defined else ""


def render_header_of(
    programs: Iterable[tuple[str, str]], file_name: str, *, location: str = ""
) -> str:
    """Return the C header of normalised programs, each with the text of its source.

    Raises SourceError for a function that C cannot call, and where there is no function at all.
    """
    found = [
        item
        for text, source_text in programs
        for item in read_declared_functions(parse_module(text), source_text)
    ]
    if not found:
        msg = "no function has the attribute llvm.emit_c_interface: there is nothing to declare"
        hint = "write func.func @name(...) attributes {llvm.emit_c_interface}"
        raise SourceError(msg, hint=hint, location=location)
    for item in found:
        if item.function.problem:
            msg = f"@{item.function.name} cannot be declared in C: {item.function.problem}"
            hint = (
                "pass numbers, memrefs of numbers or of vectors of them, or !gpu.async.token; "
                "or take llvm.emit_c_interface away"
            )
            raise SourceError(msg, hint=hint, location=item.location)
    functions = [
        HeaderFunction(item.function, _shown(item.location), item.is_external) for item in found
    ]
    return render_header(functions, file_name)


def _shown(location: str) -> str:
    """Return `file:line` without the directory: equal wherever the program lies."""
    match = _LINE_AND_COLUMN.fullmatch(location)
    return f"{PurePath(match[1]).name}:{match[2]}" if match else "?"


def _declared(
    operation: OperationText,
    aliases: Mapping[str, str],
    locations: Locations,
    source: Sequence[str],
) -> DeclaredFunction:
    given, results = function_type(operation)
    location = locations.of(operation.lines[-1])
    names = _argument_names(operation, len(given), locations, source)
    types = [parse_interface_type(_resolved(item, aliases)) for item in (*given, *results)]
    function = InterfaceFunction(
        symbol_name(operation),
        tuple(InterfaceArgument(*pair) for pair in zip(names, types, strict=False)),
        tuple(types[len(given) :]),
    )
    return DeclaredFunction(function, location, operation.is_declaration)


def _resolved(text: str, aliases: Mapping[str, str]) -> str:
    """Return the type with the aliases of affine maps and types spelled out."""
    return _ALIAS_USE.sub(lambda match: aliases.get(match[0], match[0]), text)


def _argument_names(
    operation: OperationText, count: int, locations: Locations, source: Sequence[str]
) -> list[str]:
    """Return the names that stand in the source at the places of the arguments, each once."""
    label = operation.lines[1].strip() if len(operation.lines) > 1 else ""
    places = []
    if label.startswith("^") and label.endswith("):"):
        parts = MLIR.split_list(label[label.index("(") + 1 : -2])
        places = [locations.of(f"{part.rstrip(')')} ") for part in parts]
    file = _file_of(locations.of(operation.lines[-1]))
    names: list[str] = []
    for number in range(count):
        place = places[number] if number < len(places) else ""
        name = _name_at(place, file, source) or f"arg{number}"
        names.append(name if name not in names else f"{name}_{number}")
    return names


def _file_of(location: str) -> str:
    match = _LINE_AND_COLUMN.fullmatch(location)
    return match[1] if match else ""


def _name_at(place: str, file: str, source: Sequence[str]) -> str:
    match = _LINE_AND_COLUMN.fullmatch(place)
    if match is None or match[1] != file or not 0 < int(match[2]) <= len(source):
        return ""
    name = _SOURCE_NAME.match(source[int(match[2]) - 1], int(match[3]) - 1)
    return name[1] if name else ""
