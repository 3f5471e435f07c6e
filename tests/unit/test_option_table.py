"""Every option that a parser knows is in help, completion, the manual page and the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from mlir_offload.driver.check import check
from mlir_offload.driver.doctor.verb import doctor
from mlir_offload.driver.extract import extract
from mlir_offload.driver.inspect.verb import inspect
from mlir_offload.driver.message import options as message_options
from mlir_offload.driver.option import command_line as options
from mlir_offload.driver.option import configured
from mlir_offload.driver.option.completion import render_completion
from mlir_offload.driver.option.help import render_help
from mlir_offload.driver.option.manual import render_manual
from mlir_offload.driver.option.table import Verb, find_option, load_verbs
from mlir_offload.driver.package import verb as package
from mlir_offload.driver.project import verb as project
from mlir_offload.driver.toolchains import toolchains
from mlir_offload.driver.trust import trust
from mlir_offload.toolchain.errors import UsageError

DOCS = Path(__file__).resolve().parents[2] / "docs"
EVERYWHERE = {
    *message_options.known_options(),
    *configured.known_options(),
    *("--help", "-h", "-v"),
}
COMPILER = {
    *options._FLAGS,
    *options._JOINED,
    *options._JOINED_OR_SEPARATE,
    *EVERYWHERE,
    *("--version", "--completion=", "--cmake-dir", "--pkg-config-dir", "--toolchain-id"),
    "--print-cache-key",
}
# These two are the compiler's: the other verbs run no tool on the user's files.
OF_COMPILER = {"--reproduce=", "-fno-crash-diagnostics"}


def of_click(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts if name[0] == "-"}


KNOWN = {
    "": COMPILER,
    "run": COMPILER,
    "build": of_click(project._command) - {"--output", "--verbose", "--config"}
    | {"--no-cache"}
    | EVERYWHERE - OF_COMPILER,
    "check": of_click(check) | EVERYWHERE - OF_COMPILER,
    "explain": EVERYWHERE - OF_COMPILER,
    "inspect": of_click(inspect) | EVERYWHERE - OF_COMPILER,
    "extract": of_click(extract) - {"--output"} | EVERYWHERE - OF_COMPILER,
    "trust": of_click(trust) | EVERYWHERE - OF_COMPILER,
    "toolchains": of_click(toolchains) | EVERYWHERE - OF_COMPILER,
    "doctor": of_click(doctor) - {"--verbose"} | EVERYWHERE - OF_COMPILER,
    "package": {f"--{name}=" for name in package._OPTIONS if name != "o"}
    | {"-o"}
    | EVERYWHERE - OF_COMPILER,
}

CODE = {*("-O", "-O0", "-O1", "-O2", "-O3", "-g", "-g0", "-fPIC", "-fpic")}
TEMPS = {"-save-temps", "-save-temps=", "-j", "-o", "-###", "--llvm=", "--cuda-path="}
KNOWN["bundle"] = (
    {"--offload-arch=", "--for-clang=", "--with-device-libs"}
    | {"-ffile-prefix-map=", "-fdebug-prefix-map="}
    | CODE
    | TEMPS
    | EVERYWHERE - OF_COMPILER
)
KNOWN["link"] = (
    {"-c", "-shared", "-L", "-l", "-Wl,", "-fuse-ld=", "-ftime-report", "--rocm-path=", "-march="}
    | {*options._LINK_FLAGS}
    | CODE
    | TEMPS
    | EVERYWHERE - OF_COMPILER
)


def in_table(verb: Verb) -> set[str]:
    return {name for row in verb.rows for name in row.names}


@pytest.mark.parametrize("name", KNOWN)
def test_the_table_has_what_the_parser_knows_and_nothing_else(name: str) -> None:
    assert in_table(load_verbs()[name]) == KNOWN[name]


def test_every_verb_is_checked() -> None:
    assert set(load_verbs()) == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_help_names_every_option_and_fits_a_screen(name: str) -> None:
    verb = load_verbs()[name]
    text = render_help(verb)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= (68 if name in {"", "run"} else 27)
    for row in verb.rows:
        assert row.label in text
        assert row.help in text


def test_the_rows_of_the_compiler_stand_for_all_their_spellings_in_the_manual() -> None:
    manual = render_manual().replace("\\-", "-").replace("\\e", "\\")
    for verb in load_verbs().values():
        for name in in_table(verb):
            assert re.search(rf"(?m)^\.B .*(?<![\w-]){re.escape(name)}", manual), name


def test_the_documentation_names_every_option_of_the_compiler() -> None:
    pages = "".join(
        (DOCS / "reference" / page).read_text()
        for page in ("command-line.md", "diagnostics.md", "configuration.md")
    )
    # A range, -O0 to -O3, is spelled out; -fpic is -fPIC, -O and -g0 are as in clang.
    for name in COMPILER - {"-O", "-g0", "-fpic", "-h", "--completion="}:
        assert name.rstrip("=,") in pages, name


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("--offload-arch=sm_90", "--offload-arch="),
        ("-save-temps", "-save-temps"),
        ("-save-temps=d", "-save-temps="),
        ("-Iinclude", "-I"),
        ("-I", "-I"),
        ("-O2", "-O2"),
        ("-static", "-static"),
        ("-Wl,-x", "-Wl,"),
    ],
)
def test_an_option_is_found_as_it_is_spelled(word: str, found: str) -> None:
    option = find_option(load_verbs()[""], word)
    assert option is not None
    assert option[1] == found


def test_what_is_no_option_is_not_found() -> None:
    assert find_option(load_verbs()[""], "--no-such") is None


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
