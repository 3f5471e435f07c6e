"""Declare functions as the commands of one verb: their operands and options, read and converted.

Options are declared as for click, which takes 13 ms to load: every compilation runs steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeVar

from mlir_offload.toolchain.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., None])
_SEE_HELP = "see the step's --help"
_HELP = frozenset({"--help", "-h"})
_WIDTH = 30
_METAVARS: Mapping[object, str] = {int: "N", Path: "FILE"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option with its names, or an operand without; `parameter` is what the function calls it."""

    parameter: str
    names: tuple[str, ...] = ()
    convert: Callable[[str], object] = str
    choices: tuple[str, ...] = ()
    default: object = None
    metavar: str = ""
    help: str = ""
    is_required: bool = False
    is_flag: bool = False
    is_repeated: bool = False

    @property
    def title(self) -> str:
        """Return how help and errors spell it."""
        value = "" if self.is_flag else self.metavar or self.parameter.upper()
        return " ".join(word for word in (", ".join(self.names), value) if word)

    def read(self, text: str) -> object:
        """Return the value that a word stands for. Raises UsageError."""
        if self.choices and text not in self.choices:
            msg = f"{self.title}: '{text}' is not one of {', '.join(self.choices)}"
            raise UsageError(msg, hint=_SEE_HELP)
        try:
            return self.convert(text)
        except ValueError as error:
            msg = f"{self.title}: '{text}' is not a number"
            raise UsageError(msg, hint=_SEE_HELP) from error


def option(  # noqa: PLR0913 (as many as click has)
    *words: str,
    type: Callable[[str], object] = str,  # noqa: A002 (as click spells it)
    choices: Sequence[str] = (),
    default: object = None,
    metavar: str = "",
    help: str = "",  # noqa: A002 (as click spells it)
    required: bool = False,
    is_flag: bool = False,
    multiple: bool = False,
) -> Parameter:
    """Return an option: its names, and what the function calls it where that is not the last name."""
    names = tuple(word for word in words if word.startswith("-"))
    parameter = next((word for word in words if word not in names), names[-1].lstrip("-"))
    if default is None and (multiple or is_flag):
        default = () if multiple else False
    return Parameter(
        parameter.replace("-", "_"),
        names,
        type,
        tuple(choices),
        default,
        metavar or _METAVARS.get(type, ""),
        help,
        required,
        is_flag,
        multiple,
    )


def argument(
    name: str,
    *,
    type: Callable[[str], object] = str,  # noqa: A002 (as click spells it)
    nargs: int = 1,
) -> Parameter:
    """Return an operand; with `nargs=-1`, all that are left."""
    return Parameter(name, (), type, is_required=nargs == 1, is_repeated=nargs != 1)


@dataclass(frozen=True, slots=True)
class _Command:
    function: Callable[..., None]
    parameters: tuple[Parameter, ...]

    @property
    def summary(self) -> str:
        return (self.function.__doc__ or "").partition("\n")[0]

    def run(self, words: Sequence[str]) -> None:
        """Call the function with what the words say. Raises UsageError."""
        options = {name: item for item in self.parameters for name in item.names}
        values: dict[str, object] = {}
        operands: list[str] = []
        waiting = list(words)
        while waiting:
            word = waiting.pop(0)
            if word == "--":
                operands.extend(waiting)
                break
            if not word.startswith("-") or word == "-":
                operands.append(word)
                continue
            name, has_value, value = word.partition("=")
            found = _option(options, name)
            _keep(values, found, self._value(found, has_value, value, waiting))
        self._take(operands, values)
        missing = [item for item in self.parameters if item.parameter not in values]
        for item in missing:
            if item.is_required:
                msg = f"missing: {item.title}"
                raise UsageError(msg, hint=_SEE_HELP)
        self.function(**{item.parameter: item.default for item in missing}, **values)

    @staticmethod
    def _value(item: Parameter, has_value: str, value: str, waiting: list[str]) -> object:
        if item.is_flag and not has_value:
            return True
        if item.is_flag or (not has_value and not waiting):
            msg = f"{item.title} takes {'no value' if item.is_flag else 'a value'}"
            raise UsageError(msg, hint=_SEE_HELP)
        return item.read(value if has_value else waiting.pop(0))

    def _take(self, operands: Sequence[str], values: dict[str, object]) -> None:
        rest = list(operands)
        for item in self.parameters:
            if not item.names and item.is_repeated:
                values[item.parameter], rest = tuple(map(item.read, rest)), []
            elif not item.names and rest:
                values[item.parameter] = item.read(rest.pop(0))
        if rest:
            msg = f"one file too many: {rest[0]}"
            raise UsageError(msg, hint=_SEE_HELP)


def _option(options: Mapping[str, Parameter], name: str) -> Parameter:
    if name in options:
        return options[name]
    return _refuse("option", name, options)


def _keep(values: dict[str, object], item: Parameter, value: object) -> None:
    before = values.get(item.parameter, ())
    if item.is_repeated and isinstance(before, tuple):
        value = (*before, value)
    values[item.parameter] = value


def _refuse(what: str, name: str, known: Mapping[str, object]) -> NoReturn:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(sorted(known))}"
    msg = f"unknown {what} '{name}'"
    raise UsageError(msg, hint=hint)


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands by their names, below one verb."""

    verb: str
    summary: str
    _commands: dict[str, _Command] = field(default_factory=dict)

    def command(self, name: str, *parameters: Parameter) -> Callable[[Function], Function]:
        """Make a function the command of this name, with these operands and options."""

        def declare(function: Function) -> Function:
            self._commands[name] = _Command(function, parameters)
            return function

        return declare

    def include(self, other: CommandGroup) -> None:
        """Take in the commands of another group."""
        self._commands.update(other._commands)

    def run(self, arguments: Sequence[str]) -> None:
        """Run the command that the first word names, or show help. Raises UsageError."""
        name = arguments[0] if arguments else "--help"
        if name in _HELP:
            sys.stdout.write(self._help())
            return
        if name not in self._commands:
            _refuse("step", name, self._commands)
        words = arguments[1:]
        if not _HELP.isdisjoint(words[: words.index("--")] if "--" in words else words):
            sys.stdout.write(self._command_help(name))
            return
        self._commands[name].run(words)

    def _help(self) -> str:
        rows = [(name, self._commands[name].summary) for name in sorted(self._commands)]
        usage = f"usage: {self.verb} NAME [option...]\n\n{self.summary}\n\n"
        return usage + _columns(rows)

    def _command_help(self, name: str) -> str:
        command = self._commands[name]
        operands = [item.title for item in command.parameters if not item.names]
        usage = " ".join(("usage:", self.verb, name, "[option...]", *operands))
        rows = [(item.title, _described(item)) for item in command.parameters if item.names]
        return f"{usage}\n\n{command.summary}\n\n{_columns(rows)}"


def _described(item: Parameter) -> str:
    required = "[required]" if item.is_required else ""
    repeated = "[several times]" if item.is_repeated else ""
    return " ".join(word for word in (item.help, required, repeated) if word)


def _columns(rows: Sequence[tuple[str, str]]) -> str:
    return "".join(f"  {name:<{_WIDTH}}  {text}".rstrip() + "\n" for name, text in rows)
