"""The names that values have in the source, found by the places that operations carry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mlir_offload.translate.mlir_syntax import MLIR
from mlir_offload.translate.mlir_text import (
    Locations,
    OperationText,
    parse_operation,
    read_locations,
    symbol_name,
)

_NAME = re.compile(r"%([\w$.-]+)")
_RESULT = re.compile(r"^\s*%([\w$.-]+)\s*=\s*$")
# What such an operation yields is not a value at its own place.
_WITH_REGIONS = re.compile(r"(?:scf|affine|linalg|gpu\.(?:launch|all_reduce))\b")
_ENTRY = re.compile(r"^\s*\^bb0\((?P<arguments>.*)\):$")
_FUNCTIONS = frozenset({"gpu.func", "func.func", "llvm.func"})


class SourceNames:
    """The text of a source, asked for names by line and column, both from 1."""

    def __init__(self, text: str) -> None:
        # Columns count bytes.
        self._rows = [
            row.decode("latin-1") for row in text.encode("utf-8", "surrogateescape").split(b"\n")
        ]

    def defined_at(self, line: int, column: int) -> str:
        """Return the name of the value that the operation or argument at a place defines."""
        before, behind = self._split(line, column)
        if argument := _NAME.match(behind):
            return argument[1]
        result = _RESULT.match(before)
        return "" if result is None or _WITH_REGIONS.match(behind) else result[1]

    def used_at(self, line: int, column: int) -> tuple[str, ...]:
        """Return the names on the rest of the line from the place of an operation."""
        return tuple(_NAME.findall(self._split(line, column)[1].split("//", 1)[0]))

    def _split(self, line: int, column: int) -> tuple[str, str]:
        row = self._rows[line - 1] if 0 < line <= len(self._rows) else ""
        return row[: column - 1], row[column - 1 :]


class Parameter(Struct, frozen=True):
    """A parameter of a function: its name, empty if unknown, and its type in MLIR."""

    name: str
    type: str


def read_parameters(device: str, names: SourceNames) -> Mapping[str, Sequence[Parameter]]:
    """Return the parameters of the functions of a device module, as mlir-opt prints it."""
    lines = device.splitlines()
    locations = read_locations(lines)
    return {
        symbol_name(function): tuple(_parameters(function, names, locations))
        for function in _functions(lines)
        if not function.is_declaration
    }


def _functions(lines: Sequence[str]) -> Iterator[OperationText]:
    """Yield the functions; between them may be operations in another form, which fixups have added."""
    for start, line in enumerate(lines):
        operation = parse_operation(line)
        if operation is None or operation.name not in _FUNCTIONS or not line.endswith("({"):
            continue
        close = " " * operation.indent + "})"
        ends = (n for n in range(start + 1, len(lines)) if lines[n].startswith(close))
        if (end := next(ends, None)) is not None:
            yield OperationText(operation.name, tuple(lines[start : end + 1]))


def _parameters(
    function: OperationText, names: SourceNames, locations: Locations
) -> Iterator[Parameter]:
    entry = _ENTRY.match(function.lines[1])
    at = _line_and_column(locations.of(function.lines[-1]))
    count = _parameter_count(function.attributes)
    for argument in MLIR.split_list(entry["arguments"])[:count] if entry else ():
        value, _, rest = argument.partition(": ")
        type_, _, _ = rest.partition(" loc(")
        place = _line_and_column(locations.of(argument))
        name = names.defined_at(*place) if place not in {at, None} else ""
        yield Parameter(name or _name_by_use(value.strip(), function, names, locations), type_)


def _parameter_count(attributes: str) -> int:
    """Return how many arguments of the entry block are parameters; workgroup memory follows them."""
    types = attributes.partition("function_type = ")[2]
    types = types.removeprefix("!llvm.func<")
    start = types.find("(")
    depth = 0
    for index in range(start, len(types)):
        depth += (types[index] in "(<[{") - (types[index] in ")]}" or _closes(types, index))
        if depth == 0:
            return len(MLIR.split_list(types[start + 1 : index]))
    return 0


def _closes(text: str, index: int) -> bool:
    return text[index] == ">" and text[index - 1] != "-"


def _name_by_use(
    value: str, function: OperationText, names: SourceNames, locations: Locations
) -> str:
    """Return the name of a captured value: that of the operand where an operation takes it."""
    for line in function.lines[2:-1]:
        operation = parse_operation(line)
        if operation is None or value not in operation.operands:
            continue
        place = _line_and_column(locations.of(line))
        used = names.used_at(*place) if place else ()
        if len(used) == len(operation.operands):
            return used[operation.operands.index(value)]
    return ""


def _line_and_column(location: str) -> tuple[int, int] | None:
    _, line, column = (["", *location.rsplit(":", 2)])[-3:] if location else ("", "", "")
    return (int(line), int(column)) if line.isdecimal() and column.isdecimal() else None
