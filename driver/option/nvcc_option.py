"""Options of nvcc without a row: translated, ignored or rejected, according to a table."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlir_offload.driver.message.report import show_note
from mlir_offload.driver.option import row as option_row
from mlir_offload.driver.option.compile_options import CompileOptions
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.tables import load_table

_ANY = "*"


class NvccOption(Struct, frozen=True):
    """An option of nvcc: its names, its value, and its treatment."""

    names: tuple[str, ...]
    value: str = ""
    is_list: bool = False
    ours: str | Mapping[str, str] | None = None
    none: str = ""
    rejected: str = ""


@functools.cache
def nvcc_options() -> tuple[NvccOption, ...]:
    """Return the rows of the table."""
    return tuple(map(_row, _table()["rows"]))


def nvcc_source() -> str:
    """Return the command that printed the options of the table."""
    return str(_table()["source"])


def options_of_the_same_name() -> tuple[str, ...]:
    """Return the long options of nvcc that this driver or clang also has."""
    return tuple(_table()["same"].split())


def take(options: CompileOptions, argument: str, rest: list[str]) -> CompileOptions | None:
    """Return the options with an option of nvcc applied; None if it is not one. Raises UsageError.

    Its translation is in `taken_for`, still to be read.
    """
    row, name = _find(argument)
    if row is None:
        return None
    if row.rejected:
        instead = row.rejected if row.rejected.startswith("use ") else ""
        reason = "" if instead else f": {row.rejected}"
        msg = f"option '{name}' of nvcc is not supported{reason}"
        raise UsageError(msg, hint=instead or "leave it out")
    given, value = _given(row, name, argument, rest)
    if row.none:
        show_note(f"{given} has no effect: {row.none}")
        return options
    words = tuple(_words(row, given, value))
    if words != (given,):
        show_note(f"{given} is taken for {' '.join(words)}" if words else f"{given} has no effect")
    return replace(options, taken_for=words)


@functools.cache
def _table() -> Mapping[str, Any]:
    return load_table("mlir_offload.driver", "nvcc_options")


def _row(entry: Mapping[str, Any]) -> NvccOption:
    return NvccOption(**{**entry, "names": tuple(entry["names"].split())})


@functools.cache
def _by_name() -> Mapping[str, NvccOption]:
    return {name: row for row in nvcc_options() for name in row.names}


def _find(argument: str) -> tuple[NvccOption | None, str]:
    """Return the row of an argument, and the name without its value. `-t4` has a joined value."""
    name = argument.partition("=")[0]
    if name.startswith("-t") and name[2:].isdecimal():
        name = "-t"
    return _by_name().get(name), name


def _given(row: NvccOption, name: str, argument: str, rest: list[str]) -> tuple[str, str]:
    """Return an option as spelled, and its value, which may be the next word."""
    if not row.value:
        return argument, ""
    if argument != name:
        return argument, argument.removeprefix(name).removeprefix("=")
    if not rest:
        msg = f"option '{name}' needs a value"
        raise UsageError(msg, hint=f"write {name} {row.value}")
    value = rest.pop()
    return f"{name} {value}", value


def _words(row: NvccOption, given: str, value: str) -> Iterator[str]:
    """Yield the translation of an option. Raises UsageError for an unknown value."""
    template = row.ours or ""
    if isinstance(template, Mapping):
        if value not in template and _ANY not in template:
            msg = f"{given}: unknown value"
            raise UsageError(msg, hint=option_row.value_hint(value, template))
        template = template.get(value, template.get(_ANY, ""))
    for part in value.split(",") if row.is_list else (value,):
        yield from (word.format(part) for word in template.split())
