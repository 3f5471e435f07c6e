"""The option table is consistent with parsers, help, completion, manual and reference pages."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from mlir_offload.driver import package
from mlir_offload.driver.option import command_line
from mlir_offload.driver.option.click_command import ClickCommand
from mlir_offload.driver.option.completion import render_completion
from mlir_offload.driver.option.help import render_help
from mlir_offload.driver.option.manual import render_manual
from mlir_offload.driver.option.row import Option, Subcommand
from mlir_offload.driver.option.subcommand import SUBCOMMANDS, every_subcommand
from mlir_offload.driver.option.table import COMPILER, CONFIGURATION, EVERYWHERE
from mlir_offload.toolchain.errors import UsageError

DOCS = Path(__file__).resolve().parents[2] / "docs"
ALL = every_subcommand()
# Options that the command line handles before the compiler runs.
ACTIONS = {
    *("--completion=", "--toolchain-id", "--print-cache-key", "--cmake-dir", "--pkg-config-dir"),
    *("--version", "-print-", "--print-", "-dumpmachine", "-dumpversion"),
}
BY_CLICK = {
    "build": "project.subcommand:_command",
    "inspect": "inspect.subcommand:inspect",
    **{
        name: SUBCOMMANDS[name].run
        for name in ("check", "doctor", "extract", "learn", "new", "toolchains", "trust")
    },
}
COMMON = {name for group in EVERYWHERE for row in group.rows for name in row.names}


def in_table(described: Subcommand) -> set[str]:
    return {name for row in described.rows for name in row.names}


@pytest.mark.parametrize("row", COMPILER.rows, ids=lambda row: row.names[0])
def test_every_option_of_the_compiler_has_a_use(row: Option) -> None:
    is_configuration = row in CONFIGURATION.rows
    assert row.does or row.says or is_configuration or ACTIONS.issuperset(row.names)


@pytest.mark.parametrize("described", ALL.values(), ids=lambda one: one.name or "compiler")
def test_no_option_is_declared_twice(described: Subcommand) -> None:
    names = [name for row in described.rows for name in row.names]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", BY_CLICK)
def test_click_reads_what_the_table_says_and_gives_the_function_each_value(name: str) -> None:
    module, _, function = BY_CLICK[name].partition(":")
    command = getattr(import_module(f"mlir_offload.driver.{module}"), function)
    assert isinstance(command, ClickCommand)
    read = {
        spelled
        for parameter in command.command.params
        for spelled in (*parameter.opts, *parameter.secondary_opts)
        if spelled.startswith("-")
    }
    rows = [row for row in SUBCOMMANDS[name].rows if row.says is None and "-h" not in row.names]
    assert read == {spelled.rstrip("=") for row in rows for spelled in row.names}
    exposed = {parameter.name for parameter in command.command.params if parameter.expose_value}
    assert {row.to for row in rows if row.to and not COMMON.intersection(row.names)} <= exposed


def test_package_reads_what_the_table_says() -> None:
    read = {f"--{name}=" for name in package._OPTIONS if name != "o"} | {"-o"}
    assert in_table(SUBCOMMANDS["package"]) - COMMON == read


def test_no_option_and_no_file_with_an_ending_could_be_a_subcommand() -> None:
    """The table of subcommands is not even loaded for them."""
    assert [name for name in SUBCOMMANDS if not command_line.is_subcommand(name)] == []
    assert not command_line.is_subcommand("saxpy.mlir")


def test_each_subcommand_names_a_function() -> None:
    for described in ALL.values():
        module, _, function = described.run.partition(":")
        assert callable(getattr(import_module(f"mlir_offload.driver.{module}"), function))


@pytest.mark.parametrize("described", ALL.values(), ids=lambda one: one.name or "compiler")
def test_help_has_a_row_for_every_option_and_fits_a_terminal(described: Subcommand) -> None:
    text = render_help(described)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    for row in described.rows:
        (line,) = [line for line in lines if f"  {row.label} " in f"{line} "[:26] or line == f"  {row.label}"]  # fmt: skip
        assert line.startswith("  ")
    assert "\n\n\n" not in text


def test_help_of_the_compiler_has_a_line_for_each_subcommand() -> None:
    lines = render_help(COMPILER).splitlines()
    for described in SUBCOMMANDS.values():
        assert f"  {described.name:24}{described.line}" in lines


def test_the_manual_names_every_spelling() -> None:
    manual = render_manual().replace("\\-", "-").replace("\\e", "\\")
    for described in ALL.values():
        for name in in_table(described):
            assert re.search(rf"(?m)^\.B .*(?<![\w-]){re.escape(name)}", manual), name


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("--offload-arch=sm_90", "--offload-arch="),
        ("--offload-arch", "--offload-arch="),
        ("-save-temps", "-save-temps"),
        ("-save-temps=d", "-save-temps="),
        ("-Iinclude", "-I"),
        ("-I", "-I"),
        ("-O2", "-O2"),
        ("-static", "-static"),
        ("-Wl,-x", "-Wl,"),
        ("--ftz", "--ftz"),
    ],
)
def test_an_option_is_found_as_it_is_spelled(word: str, found: str) -> None:
    option = COMPILER.find(word)
    assert option is not None
    assert option[1] == found


def test_what_is_no_option_is_not_found() -> None:
    assert COMPILER.find("--no-such") is None


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (("--llvm=22", "run", "k.mlir"), ("run", "--llvm=22", "k.mlir")),
        (("--llvm", "22", "run", "k.mlir"), ("run", "--llvm", "22", "k.mlir")),
        (("-q", "-j", "4", "build", "-k"), ("build", "-q", "-j", "4", "-k")),
        (("-o", "run", "k.mlir"), ("-o", "run", "k.mlir")),
        (("-o", "run", "run", "k.mlir"), ("run", "-o", "run", "k.mlir")),
        (("k.mlir", "run"), ("k.mlir", "run")),
        (("--", "run"), ("--", "run")),
        (("-c",), ("-c",)),
    ],
    ids=str,
)
def test_options_may_stand_before_the_subcommand(
    words: tuple[str, ...], first: tuple[str, ...]
) -> None:
    assert command_line.subcommand_first(words) == first


def test_a_shell_without_a_script_is_refused() -> None:
    with pytest.raises(UsageError, match="tcsh"):
        render_completion("tcsh")


def test_roff_takes_the_manual_without_a_warning() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    command = [groff, "-ww", "-man", "-Tutf8", "-z", str(DOCS / "man" / "mlir-offload.1")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""
