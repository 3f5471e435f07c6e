"""The rows of the option table, shared by all of its readers, and the lookup of a word in a table.

For an unknown word, the hint suggests a similar known one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from mlir_offload.toolchain.errors import UsageError

Value = str | int | bool | tuple[str, ...]
_LIKE_OPTION, _LIKE_WORD = 0.8, 0.7
_SHORT = len("-fx")


class Setting(Struct, frozen=True):
    """A key of the configuration files, the option that it sets, and the environment variables for it.

    `option` and `off` are the options that turn a switch on and off. `is_of_build` restricts a setting to `build`.
    If `is_read_elsewhere`, its variables are read where they are used; here they only override the files. The table
    fills in `option` and `choices`, unless the row sets them.
    """

    key: str
    kind: type[str | int | bool | tuple[str, ...]]
    default: str
    variables: tuple[str, ...] = ()
    is_path: bool = False
    is_read_elsewhere: bool = False
    option: str | None = None
    off: str = ""
    choices: tuple[str, ...] = ()
    is_of_build: bool = False

    def arguments(self, value: Value) -> tuple[str, ...]:
        """Return the value as options of the command line."""
        if isinstance(value, bool):
            chosen = self.option if value else self.off
            return (chosen,) if chosen else ()
        joined = ",".join(value) if isinstance(value, tuple) else str(value)
        return (f"{self.option}{joined}",)

    def is_given_by(self, word: str) -> bool:
        """Return whether a word of the command line is this option."""
        option = self.option or ""
        if self.kind is bool:
            return word in {option, self.off}
        return word.startswith(option) or word == option.rstrip("=")


class Option(Struct, frozen=True):
    """An option: its spellings, its values, its help, and its use by each reader of the table.

    names: the spellings. If a spelling ends with `=` or `,`, the value is joined (after two dashes it may be
    the next word too). Otherwise the value is joined or the next word.
    value: the placeholder for the value. values: the words to choose from, or their source: archs,
    releases, files, directories. path: what the value names: input, output, folder, library, pipeline
    (a .yaml file is one), keyed (KEY=FILE), tool (a path on this host).
    program: whether the value names a program, for which a project needs trust: always, place (unless
    it is a release), path (if it contains a slash).
    is_closed: whether `values` is complete. does: the function that applies the value to the compile options.
    says: the function that applies it to the message options. to, kind, is_repeated: the parameter of
    a subcommand's function; `keyed` is an option with a key and then a value, `separate` one whose
    value is only the next word, `prefix` one of several names.
    setting: the configuration key of the option.
    inputs: the inputs that it applies to, if not all: mlir, c, link, preprocessor (C and C++).
    doc: the text of the reference page, if longer than the help.
    in_key: whether it affects the output, and thus the key of a compiler cache.
    """

    names: tuple[str, ...]
    help: str
    value: str = ""
    values: tuple[str, ...] | str = ()
    path: str = ""
    program: str = ""
    is_closed: bool = False
    does: Callable[..., Any] | None = None
    says: Callable[..., Any] | None = None
    to: str = ""
    kind: str = ""
    is_repeated: bool = False
    setting: Setting | None = None
    inputs: str = ""
    doc: str = ""
    in_key: bool = True

    @property
    def label(self) -> str:
        """Return the spellings with the value, for help."""
        return ", ".join(self.spelled(name) for name in self.names)

    def spelled(self, name: str) -> str:
        """Return one spelling with its value."""
        if not self.takes_value(name):
            return name
        return f"{name}{self.value}" if is_joined(name) else f"{name} {self.value}"

    def takes_value(self, name: str) -> bool:
        """Return whether this spelling has a value; if one spelling has a joined value, the others have none."""
        return is_joined(name) or (bool(self.value) and not any(map(is_joined, self.names)))


def is_joined(name: str) -> bool:
    """Return whether an option is written with its value as one word."""
    return name.endswith(("=", ","))


class Group(Struct, frozen=True):
    """Options under a common heading."""

    title: str
    rows: tuple[Option, ...]


class Subcommand:
    """A subcommand and its options. The compiler itself has an empty name.

    `run` is the module and function of mlir_offload.driver that run it.
    """

    def __init__(
        self,
        name: str,
        run: str,
        line: str,
        summary: str,
        usage: tuple[str, ...],
        groups: tuple[Group, ...],
    ) -> None:
        """Set the fields; `line` is for the list of subcommands, `summary` for its help."""
        self.name, self.run, self.line, self.summary = name, run, line, summary
        self.usage, self.groups = usage, groups

    @cached_property
    def rows(self) -> tuple[Option, ...]:
        """Return all options."""
        return tuple(row for group in self.groups for row in group.rows)

    @cached_property
    def _exact(self) -> Mapping[str, Option]:
        return {name: row for row in self.rows for name in row.names}

    @cached_property
    def _prefixes(self) -> Sequence[tuple[str, Option]]:
        found = [
            (name, row)
            for name, row in self._exact.items()
            if row.takes_value(name) and row.kind != "separate"
        ]
        return sorted(found, key=lambda pair: len(pair[0]), reverse=True)

    def named(self, name: str) -> Option:
        """Return the row of an option."""
        return self._exact[name]

    def find(self, word: str) -> tuple[Option, str] | None:
        """Return the row of a command-line word, and the matching spelling; None if there is none."""
        if word in self._exact:
            return self._exact[word], word
        # An option and its separate value in one string, as recorded in `spelled`.
        name, space, _ = word.partition(" ")
        if space and name in self._exact and self._exact[name].kind == "separate":
            return self._exact[name], f"{name} "
        for name, row in self._prefixes:
            if word.startswith(name):
                return row, name
        # The value of a long option may be the next word.
        joined = f"{word}="
        if word.startswith("--") and joined in self._exact:
            return self._exact[joined], joined
        return None

    def takes_next(self, word: str) -> bool:
        """Return whether the value of an option is the next word."""
        found = self.find(word)
        if found is None:
            return False
        row, name = found
        if row.kind == "keyed":
            return "=" not in word
        if name.endswith(" "):
            return False
        is_bare = word == name.rstrip("=") and (not is_joined(name) or word != name)
        return row.takes_value(name) and is_bare


def read_option(table: Subcommand, word: str, rest: list[str]) -> tuple[Option, str, str]:
    """Return the row of an option, its spelling, and its value: joined, or the next word of `rest`.

    Raises UsageError for an unknown option, a missing value, and a value that is not among the choices.
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
        raise UsageError(msg, hint=value_hint(value, row.values))
    return row, name, value


def _next(word: str, row: Option, rest: list[str]) -> str:
    if not rest:
        msg = f"option '{word}' needs a value"
        raise UsageError(msg, hint=f"write {row.label}")
    return rest.pop()


def unknown_option(table: Subcommand, word: str) -> UsageError:
    """Return the error for an option that the table does not have."""
    return UsageError(f"unknown option '{word}'", hint=option_hint(word, table))


def nearest(word: str, known: Iterable[str], cutoff: float = _LIKE_WORD) -> str:
    """Return the most similar known word; empty if there is none."""
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else ""


def value_hint(word: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown value."""
    names = list(known)
    near = nearest(word, names)
    return f"did you mean '{near}'?" if near else f"use one of {', '.join(names)}"


def option_hint(argument: str, described: Subcommand) -> str:
    """Return the hint for an unknown option of a subcommand or of the compiler."""
    own = (name for row in described.rows for name in row.names)
    plain = {name.rstrip("=,"): name for name in own}
    word = argument.partition("=")[0]
    near = nearest(word, plain, _LIKE_OPTION) if len(word) > _SHORT else ""
    if near:
        return f"did you mean '{near}'?"
    return f"see 'mlir-offload {described.name} --help'".replace("  ", " ")
