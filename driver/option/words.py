"""Words of a command line as a table of options describes them."""

from __future__ import annotations

from mlir_offload.driver.option import suggest
from mlir_offload.driver.option.row import Option, Subcommand
from mlir_offload.toolchain.errors import UsageError


def read_option(table: Subcommand, word: str, rest: list[str]) -> tuple[Option, str, str]:
    """Return the row of an option, its spelling, and its value: joined, or the next of the rest.

    Raises UsageError for an unknown option, a missing value, and one that cannot be chosen.
    """
    found = table.find(word)
    if found is None:
        raise unknown_option(table, word)
    row, name = found
    value = word.removeprefix(name)
    if row.kind == "keyed":
        return row, name, value if "=" in value else f"{value}={_next(word, row, rest)}"
    if row.kind == "separate":
        return row, f"{name.rstrip(' ')} ", value or _next(word, row, rest)
    if table.takes_next(word):
        value = _next(word, row, rest)
    if row.is_closed and value not in row.values:
        msg = f"{name}{value}: unknown value"
        raise UsageError(msg, hint=suggest.value_hint(value, row.values))
    return row, name, value


def _next(word: str, row: Option, rest: list[str]) -> str:
    if not rest:
        msg = f"option '{word}' needs a value"
        raise UsageError(msg, hint=f"write {row.label}")
    return rest.pop()


def unknown_option(table: Subcommand, word: str) -> UsageError:
    """Return the error for an option that the table does not have."""
    return UsageError(f"unknown option '{word}'", hint=suggest.option_hint(word, table))
