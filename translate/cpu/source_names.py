"""Names of values in the MLIR source, found by the locations of operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.translate.mlir.module import Locations, parse_module
from mlir_offload.translate.mlir.operation import Operation, function_type
from mlir_offload.translate.mlir.syntax import tokens

# The result of such an operation is not computed at the location of the operation.
_WITH_REGIONS = ("scf.", "affine.", "linalg.", "gpu.launch", "gpu.all_reduce")
_FUNCTIONS = frozenset({"gpu.func", "func.func", "llvm.func"})


class SourceNames:
    """A source text, for the lookup of names by line and column, which count from 1."""

    def __init__(self, text: str) -> None:
        # Columns count bytes.
        self._rows = [
            row.decode("latin-1") for row in text.encode("utf-8", "surrogateescape").split(b"\n")
        ]

    def defined_at(self, line: int, column: int) -> str:
        """Return the name of the value that the operation or argument at a location defines; empty if unknown."""
        text = self._split(line, column)
        before, behind = map(tokens, text)
        if text[1].startswith("%"):
            return _bare(behind[0])
        is_result = [token[0] for token in before] == ["%", "="]
        return _bare(before[0]) if is_result and not _has_regions(behind) else ""

    def used_at(self, line: int, column: int) -> tuple[str, ...]:
        """Return the names in the rest of the line, from the location of an operation."""
        behind = tokens(self._split(line, column)[1])
        return tuple(_bare(token) for token in behind if token.startswith("%"))

    def _split(self, line: int, column: int) -> tuple[str, str]:
        row = self._rows[line - 1] if 0 < line <= len(self._rows) else ""
        return row[: column - 1], row[column - 1 :]


class Parameter(Struct, frozen=True):
    """A parameter of a function: its name, empty if unknown, and its type in MLIR."""

    name: str
    type: str


def read_parameters(device: str, names: SourceNames) -> Mapping[str, Sequence[Parameter]]:
    """Return the parameters of the functions of a device module, as mlir-opt prints it."""
    module = parse_module(device)
    locations = Locations(module.aliases)
    return {
        function.symbol: tuple(_parameters(function, names, locations))
        for function in module.operation.walk_inside()
        if function.name in _FUNCTIONS and not function.is_declaration
    }


def _parameters(
    function: Operation, names: SourceNames, locations: Locations
) -> Iterator[Parameter]:
    at = _line_and_column(locations.of(function))
    # Workgroup memory follows the parameters.
    count = len(function_type(function)[0])
    for argument in function.regions[0].blocks[0].arguments[:count]:
        place = _line_and_column(locations.resolve(argument.location))
        name = names.defined_at(*place) if place not in {at, None} else ""
        found = name or _name_by_use(argument.name, function, names, locations)
        yield Parameter(found, argument.type)


def _name_by_use(value: str, function: Operation, names: SourceNames, locations: Locations) -> str:
    """Return the source name of a captured value, from an operation that uses it; empty if unknown."""
    for operation in function.walk_inside():
        operands = operation.operand_names
        if value not in operands:
            continue
        place = _line_and_column(locations.of(operation))
        used = names.used_at(*place) if place else ()
        if len(used) == len(operands):
            return used[operands.index(value)]
    return ""


def _bare(token: str) -> str:
    """Return the name of a value without the percent sign and the result number."""
    return token[1:].partition("#")[0]


def _has_regions(behind: Sequence[str]) -> bool:
    return bool(behind) and behind[0].startswith(_WITH_REGIONS)


def _line_and_column(location: str) -> tuple[int, int] | None:
    _, line, column = (["", *location.rsplit(":", 2)])[-3:] if location else ("", "", "")
    return (int(line), int(column)) if line.isdecimal() and column.isdecimal() else None
