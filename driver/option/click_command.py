"""Subcommands as click commands: each parameter is a row of the option table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from mlir_offload.driver.option.row import Option, option_hint
from mlir_offload.driver.option.subcommand import SUBCOMMANDS
from mlir_offload.toolchain.errors import UsageError
from mlir_offload.toolchain.process import Runner

# Not checked for readability, because the code that reads the file reports the reason.
PATH = click.Path(path_type=Path, readable=False)
_TYPES: Mapping[str, click.ParamType[Any]] = {
    "path": PATH,
    "count": click.IntRange(1),
    "seconds": click.FloatRange(min=0, min_open=True),
}


class ClickCommand(Struct, frozen=True):
    """A subcommand whose options click reads. To run it, call it."""

    name: str
    command: click.Command

    def __call__(self, arguments: Sequence[str], runner: Runner) -> int:
        """Return the exit status. Raises UsageError for an invalid command line, and what the function raises."""
        return int(self.result(arguments, runner) or 0)

    def result(self, arguments: Sequence[str], runner: Runner) -> Any:
        """Return the result of the function, None after --help. Raises like a call."""
        program = f"mlir-offload {self.name}"
        try:
            return self.command.main(
                list(arguments), prog_name=program, standalone_mode=False, obj=runner
            )
        except click.NoSuchOption as error:
            name = error.option_name
            msg = f"unknown option '{name}'"
            raise UsageError(msg, hint=option_hint(name, SUBCOMMANDS[self.name])) from error
        except click.ClickException as error:
            text = error.format_message().removesuffix(".")
            hint = f"see '{program} --help'"
            raise UsageError(text[:1].lower() + text[1:], hint=hint) from error


def command(
    name: str, *operands: click.Argument, **defaults: object
) -> Callable[[Callable[..., Any]], ClickCommand]:
    """Return a decorator that makes a function a command. Its parameters are options of the subcommand."""

    def make(function: Callable[..., Any]) -> ClickCommand:
        rows = [row for row in SUBCOMMANDS[name].rows if row.says is None]
        offs = {row.to: row.names[0] for row in rows if row.kind == "off"}
        wanted = _wanted(function)
        options = [
            _parameter(row, offs.get(row.to, ""), defaults, is_wanted=wanted(row.to))
            for row in rows
            if row.kind != "off" and "--help" not in row.names
        ]
        settings = {"help_option_names": ["--help", "-h"]}
        parameters = [*operands, *options]
        made = click.Command(
            name, settings, callback=function, params=parameters, help=function.__doc__
        )
        return ClickCommand(name, made)

    return make


def _wanted(function: Callable[..., Any]) -> Callable[[str], bool]:
    """Return a predicate: whether a function has a parameter of this name."""
    parameters = inspect.signature(function).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return lambda name: bool(name) and (takes_all or name in parameters)


def _parameter(
    row: Option, off: str, defaults: Mapping[str, object], *, is_wanted: bool
) -> click.Option:
    names = [name.rstrip("=") for name in row.names]
    target = [row.to] if is_wanted else []
    if not row.value:
        spelled = [f"{names[0]}/{off}"] if off else names
        return click.Option(
            [*spelled, *target],
            is_flag=True,
            default=None if off else False,
            expose_value=is_wanted,
        )
    # By default, a string is empty, and a path or a number is None.
    default = None if row.is_repeated or row.kind in {*_TYPES, "choice"} else ""
    return click.Option(
        [*names, *target],
        type=click.Choice(row.values)
        if row.kind == "choice"
        else _TYPES.get(row.kind, click.STRING),
        multiple=row.is_repeated,
        default=defaults.get(row.to, default),
        expose_value=is_wanted,
    )
