"""The options of every verb, as help, completion and the manual page show them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from mlir_offload.driver.option.subcommand import SUBCOMMANDS
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.tables import load_table


class OptionRow(Struct, frozen=True):
    """Options that are explained together.

    `values` are the words to choose from, or one of archs, releases, files, directories; `path`
    what kind of file a value names: input, output, folder, library, tool; pipeline and keyed may name one.
    """

    names: tuple[str, ...]
    help: str
    value: str = ""
    values: tuple[str, ...] | str = ()
    path: str = ""
    shown: str = ""

    @property
    def label(self) -> str:
        """Return the options as a person reads them, with their value."""
        if self.shown:
            return self.shown
        return ", ".join(self.spelled(name) for name in self.names)

    def spelled(self, name: str) -> str:
        """Return one option with its value."""
        if not self.takes_value(name):
            return name
        return f"{name}{self.value}" if is_joined(name) else f"{name} {self.value}"

    def takes_value(self, name: str) -> bool:
        """Return whether this spelling has a value; where one has it joined, no other has it."""
        return is_joined(name) or (bool(self.value) and not any(map(is_joined, self.names)))


def is_joined(name: str) -> bool:
    """Return whether an option is written with its value as one word."""
    return name.endswith(("=", ","))


class OptionGroup(Struct, frozen=True):
    """Options under one heading."""

    title: str
    rows: tuple[OptionRow, ...]


class Verb(Struct, frozen=True):
    """What one verb does and takes; the compiler itself has no name."""

    name: str
    summary: str
    usage: tuple[str, ...]
    has_files: bool
    groups: tuple[OptionGroup, ...]

    @property
    def rows(self) -> tuple[OptionRow, ...]:
        """Return all options of the verb."""
        return tuple(row for group in self.groups for row in group.rows)


@functools.cache
def load_verbs() -> Mapping[str, Verb]:
    """Return the verbs by name, the compiler itself under the empty one.

    Raises ValueError if the table describes other subcommands than there are.
    """
    table = load_table("mlir_offload.driver", "options")
    common = tuple(map(_group, table["everywhere"]))
    compiler = _verb("", table["compile"], common)
    verbs = {"": compiler}
    if table["verbs"].keys() != SUBCOMMANDS.keys():
        msg = f"options: {sorted(table['verbs'].keys() ^ SUBCOMMANDS.keys())}"
        raise ValueError(msg)
    for name, entry in table["verbs"].items():
        # A verb without groups takes what the compiler takes.
        verb = _verb(name, entry, common)
        verbs[name] = verb if "groups" in entry else _verb(name, table["compile"] | entry, common)
    return verbs


def _verb(name: str, entry: Mapping[str, Any], common: tuple[OptionGroup, ...]) -> Verb:
    groups = tuple(map(_group, entry.get("groups", ())))
    usage = tuple(entry["usage"])
    return Verb(name, entry["summary"], usage, entry["operands"] == "files", (*groups, *common))


def _group(entry: Mapping[str, Any]) -> OptionGroup:
    return OptionGroup(entry["title"], tuple(map(_row, entry["options"])))


def _row(entry: Mapping[str, Any]) -> OptionRow:
    """Return a row. Raises TypeError for a key that it does not have."""
    values = entry.get("values", ())
    lists = {
        "names": tuple(entry["names"]),
        "values": values if isinstance(values, str) else tuple(values),
    }
    return OptionRow(**{**entry, **lists})


def find_option(verb: Verb, word: str) -> tuple[OptionRow, str] | None:
    """Return the row of a word of the command line, and the option as the row spells it."""
    best: tuple[OptionRow, str] | None = None
    for row in verb.rows:
        for name in row.names:
            is_it = word == name or (row.takes_value(name) and word.startswith(name))
            if is_it and (best is None or len(name) > len(best[1])):
                best = row, name
    return best


def check_spelled(name: str, spelled: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError for an option of the compiler that a verb does not take."""
    verb = load_verbs()[name]
    for option, _ in spelled:
        if find_option(verb, option) is None:
            msg = f"{name} does not take {option.rstrip('=')}"
            raise UsageError(msg, hint=f"see 'mlir-offload {name} --help'")
