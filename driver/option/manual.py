"""The manual page in roff, generated from the option table."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlir_offload.driver.option.row import Group, Subcommand
from mlir_offload.driver.option.subcommand import every_subcommand
from mlir_offload.driver.option.table import PROJECT_FILE, SETTINGS

_HEAD = """\
.\\" Made by docs/generate.py from driver/option/table.py.
.TH MLIR\\-OFFLOAD 1 "" "mlir\\-offload" "User Commands"
.SH NAME
mlir\\-offload \\- compile MLIR programs with GPU kernels ahead of time
.SH SYNOPSIS
"""
_DESCRIPTION = """\
.SH DESCRIPTION
.B mlir\\-offload
makes an object, a program or a shared library of MLIR with kernels of the GPU dialect, as clang does of
CUDA C++. It starts the mlir\\-opt, mlir\\-translate and clang that are installed. Options are spelled as
clang spells them; those of the compiler come first, then those of each subcommand.
"""
_STATUS = (
    ("0", "success"),
    ("1", "the input program has an error"),
    ("2", "the command line or a configuration file has an error"),
    ("3", "a tool, library or SDK is missing"),
    ("4", "incompatible parts"),
    ("5", "a tool failed"),
    ("6", "the result is incomplete"),
    ("7", "a file cannot be read or written"),
    ("130", "interrupted"),
)
_SPECIAL = re.compile(r"[\\-]")


def render_manual() -> str:
    """Return the page."""
    subcommands = every_subcommand()
    usage = [
        f".B {_roff(f'mlir-offload {subcommand.name}'.rstrip())}\n{_roff(line)}\n.br\n"
        for subcommand in subcommands.values()
        for line in subcommand.usage
    ]
    compiler = subcommands[""]
    # Groups that all subcommands share are printed once.
    return "".join(
        (
            _HEAD,
            *usage,
            _DESCRIPTION,
            ".SH OPTIONS\n",
            *map(_group, compiler.groups),
            ".SH SUBCOMMANDS\n",
            *(
                _subcommand(subcommand, compiler)
                for subcommand in subcommands.values()
                if subcommand.name
            ),
            *_environment(),
            *_files(),
            ".SH EXIT STATUS\n",
            *(_item(f".B {status}", meaning) for status, meaning in _STATUS),
            ".SH SEE ALSO\n.BR clang (1)\n",
        )
    )


def _subcommand(subcommand: Subcommand, compiler: Subcommand) -> str:
    own = [group for group in subcommand.groups if group not in compiler.groups]
    return f".SS mlir\\-offload {subcommand.name}\n{_text(subcommand.summary)}\n{''.join(map(_items, own))}"


def _group(group: Group) -> str:
    return f".SS {_roff(group.title.capitalize())}\n{_items(group)}"


def _items(group: Group) -> str:
    return "".join(
        _item(f".B {_roff(', '.join(row.spelled(name) for name in row.names))}", row.help)
        for row in group.rows
    )


def _item(head: str, text: str) -> str:
    return f".TP\n{head}\n{_text(text)}\n"


def _environment() -> Iterator[str]:
    yield ".SH ENVIRONMENT\n"
    for setting in SETTINGS:
        for variable in setting.variables:
            yield _item(f".B {_roff(variable)}", f"decides {setting.key} where no option does")
    yield _item(".B MLIR_OFFLOAD_CONFIG", f"a file in place of {PROJECT_FILE}, or off")


def _files() -> Iterator[str]:
    keys = ", ".join(setting.key for setting in SETTINGS)
    yield ".SH FILES\n"
    yield _item(f".I {_roff(PROJECT_FILE)}", f"settings of a project, in TOML: {keys}")
    yield _item(".I $XDG_CONFIG_HOME/mlir\\-offload/config.toml", "settings of a user")


def _text(text: str) -> str:
    """Return a line of text that does not begin with a control character."""
    escaped = _roff(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _roff(text: str) -> str:
    return _SPECIAL.sub(lambda found: {"\\": "\\e", "-": "\\-"}[found[0]], text)
