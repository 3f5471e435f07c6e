"""The functions of a program for callers in C and Python: `llvm.emit_c_interface`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from msgspec import Struct

from mlir_offload.offload.interface.c_header import HeaderFunction, c_identifier, render_header
from mlir_offload.offload.interface.function import (
    InterfaceArgument,
    InterfaceFunction,
    serialize_interface,
)
from mlir_offload.offload.interface.type import parse_interface_type
from mlir_offload.toolchain.errors import SourceError
from mlir_offload.translate.mlir.module import Locations, Module, parse_module
from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import replace_names, tokens

_ATTRIBUTE = "llvm.emit_c_interface"


class DeclaredFunction(Struct, frozen=True):
    """A function of the interface, its location, and whether C must define it."""

    function: InterfaceFunction
    location: str
    is_external: bool


def read_declared_functions(module: Module, source_text: str) -> tuple[DeclaredFunction, ...]:
    """Return the functions of an outlined program with a C wrapper, in order.

    The names of arguments are those in the text of the source, if they can be determined.
    """
    wanted = [op for op in module.operations if op.name == "func.func" and op.has(_ATTRIBUTE)]
    if not wanted:
        return ()
    aliases = module.aliases
    source = source_text.split("\n")
    return tuple(_declared(op, aliases, source) for op in wanted)


def interface_of(module: Module, source_text: str) -> str:
    """Return JSON of the interface functions that the program defines, an empty string if there are none."""
    declared = read_declared_functions(module, source_text)
    defined = [item.function for item in declared if not item.is_external]
    return serialize_interface(defined) if defined else ""


def render_header_of(
    programs: Iterable[tuple[str, str]], file_name: str, *, location: str = ""
) -> str:
    """Return the C header of outlined programs. Each program is a pair with the text of its source.

    Raises SourceError for a function that C cannot call, and if there are no functions.
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
    names: dict[str, str] = {}
    for item in found:
        other = names.setdefault(c_identifier(item.function), item.function.name)
        if other != item.function.name:
            msg = f"@{item.function.name} and @{other} have the same name in C"
            hint = "rename one: C names consist of letters, digits and underscores"
            raise SourceError(msg, hint=hint, location=item.location)
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
    """Return `file:line` without the directory, so that the header does not depend on it."""
    file, line, _ = _parts(location)
    return f"{PurePath(file).name}:{line}" if file else "?"


def _parts(location: str) -> tuple[str, int, int]:
    """Return file, line and column of a location; the file is empty if the location has another form."""
    place, _, column = location.rpartition(":")
    file, _, line = place.rpartition(":")
    return (file, int(line), int(column)) if line.isdigit() and column.isdigit() else ("", 0, 0)


def _declared(
    operation: Operation, aliases: Mapping[str, str], source: Sequence[str]
) -> DeclaredFunction:
    given, results = function_type(operation)
    locations = Locations(aliases)
    names = _argument_names(operation, len(given), locations, source)
    types = [parse_interface_type(_resolved(item, aliases)) for item in (*given, *results)]
    function = InterfaceFunction(
        operation.symbol,
        tuple(InterfaceArgument(*pair) for pair in zip(names, types, strict=False)),
        tuple(types[len(given) :]),
    )
    return DeclaredFunction(function, locations.of(operation), operation.is_declaration)


def _resolved(text: str, aliases: Mapping[str, str]) -> str:
    """Expand the aliases in a type."""
    return replace_names(text, lambda name: aliases.get(name, name))


def _argument_names(
    operation: Operation, count: int, locations: Locations, source: Sequence[str]
) -> list[str]:
    """Return unique names for the arguments from their locations in the source."""
    blocks = operation.regions[0].blocks if operation.regions else []
    arguments = blocks[0].arguments if blocks else ()
    places = [locations.resolve(argument.location) for argument in arguments]
    file, _, _ = _parts(locations.of(operation))
    names: list[str] = []
    for number in range(count):
        place = places[number] if number < len(places) else ""
        name = _name_at(place, file, source) or f"arg{number}"
        names.append(name if name not in names else f"{name}_{number}")
    return names


def _name_at(place: str, file: str, source: Sequence[str]) -> str:
    found, line, column = _parts(place)
    if not found or found != file or not 0 < line <= len(source):
        return ""
    text = source[line - 1][column - 1 :]
    name = tokens(text)[0][1:] if text.startswith("%") else ""
    return name if name.isidentifier() and name.isascii() else ""
