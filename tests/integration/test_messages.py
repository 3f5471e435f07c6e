"""What children say, in each form, with the real tools."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.sarif import SARIF_SUBSET

from mlir_offload.driver.message.json import schema_text

pytestmark = pytest.mark.llvm(22)

HOST = "--offload-arch=host"
BAD = """\
func.func @f() {
  %0 = arith.constant 1 : i32
  %1 = arith.addi %0, %0 : i64
  return
}
"""
GOOD = "func.func @main() -> i32 {\n  %c = arith.constant 0 : i32\n  return %c : i32\n}\n"
UNUSED = "#warning odd\nint main(void) { return 0; }\n"

Compiler = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def compiler(mlir_offload: list[str], tmp_path: Path) -> Compiler:
    def run(
        *arguments: str | Path, status: int, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [*mlir_offload, "--no-config", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == status, result.stderr
        return result

    return run


def messages_of(stderr: str) -> list[dict[str, Any]]:
    schema = json.loads(schema_text())
    messages = [json.loads(line) for line in stderr.splitlines()]
    for message in messages:
        jsonschema.validate(message, schema)
    return messages


def test_an_error_in_a_program_has_its_place_stage_tool_and_cure(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "k.mlir").write_text(BAD)
    result = compiler("-c", HOST, "--message-format=json", "k.mlir", status=1)
    error, note = messages_of(result.stderr)
    assert (error["file"], error["line"], error["column"]) == ("k.mlir", 3, 19)
    assert (error["stage"], error["tool"], error["tool_status"]) == ("lower", "mlir-opt", 1)
    assert (error["class"], error["status"]) == ("source", 1)
    assert error["end_column"] == 21
    assert error["details"][1].endswith("| " + " " * 18 + "^~")
    assert (note["severity"], note["line"]) == ("note", 2)
    # The first tool reads the user's own file, so that its line can be run again as it is.
    again = subprocess.run(
        ["sh", "-c", error["command"].rpartition(" -o ")[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "k.mlir:3:19: error:" in again.stderr


def test_an_undefined_symbol_is_a_message_of_the_linker(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "m.c").write_text("int f(void);\nint main(void) { return f(); }\n")
    result = compiler("--message-format=json", "m.c", status=1)
    (only,) = messages_of(result.stderr)
    assert (only["tool"], only["stage"], only["status"]) == ("ld.lld", "link", 1)
    assert (only["message"], only["file"]) == ("undefined symbol 'f'", "m.c")


def test_a_warning_of_clang_is_shown_although_it_succeeds(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "m.c").write_text(UNUSED)
    shown = compiler("-c", "m.c", status=0).stderr
    assert shown.splitlines()[0] == "m.c:1:2: warning: odd [-W#warnings]"
    (message,) = messages_of(compiler("-c", "m.c", "--message-format=json", status=0).stderr)
    assert (message["severity"], message["file"], message["stage"]) == ("warning", "m.c", "compile")
    assert compiler("-c", "-q", "m.c", status=0).stderr == ""


def test_what_tools_say_of_files_between_is_not_for_persons(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "k.mlir").write_text(GOOD)
    assert compiler("-c", HOST, "k.mlir", status=0).stderr == ""


def test_sarif_is_one_document(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text(BAD)
    result = compiler("-c", HOST, "--message-format=sarif", "k.mlir", status=1)
    document = json.loads(result.stderr)
    jsonschema.validate(document, SARIF_SUBSET)
    assert document["runs"][0]["invocations"][0]["exitCode"] == 1
    assert [item["level"] for item in document["runs"][0]["results"]] == ["error", "note"]


def test_a_file_takes_the_messages_and_a_person_reads_text(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "k.mlir").write_text(BAD)
    arguments = ("--message-format=sarif", "--message-file=out.sarif", "-c", HOST, "k.mlir")
    assert compiler(*arguments, status=1).stderr.startswith("k.mlir:3:19: error: ")
    jsonschema.validate(json.loads((tmp_path / "out.sarif").read_text()), SARIF_SUBSET)
    (tmp_path / "k.mlir").write_text(GOOD)
    compiler(*arguments, status=0)
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"] == []


def test_github_shows_an_error_beside_its_line(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text(BAD)
    lines = compiler("-c", HOST, "--message-format=github", "k.mlir", status=1).stderr.splitlines()
    assert lines[0].startswith(
        "::error file=k.mlir,line=3,col=19,endColumn=20,title=mlir-opt (lower)::use of"
    )
    assert lines[1].startswith("::notice file=k.mlir,line=2,")


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (("-c", "gone.mlir"), 7, "input-output"),
        (("--offload-arch=sm_999", "-c", "k.mlir"), 4, "compatibility"),
        (("--frobnicate", "k.mlir"), 2, "usage"),
        (("inspect", "gone.o"), 7, "input-output"),
        (("extract", "k.mlir"), 2, "usage"),
        (("package", "-o", "x"), 7, ""),
        (("toolchains", "--nonsense"), 2, "usage"),
        (("run", "-c", "k.mlir"), 2, "usage"),
    ],
)
def test_every_subcommand_speaks_to_machines(
    compiler: Compiler, tmp_path: Path, arguments: tuple[str, ...], status: int, word: str
) -> None:
    (tmp_path / "k.mlir").write_text(GOOD)
    if not word:
        # A note in place of an error: no image is an empty package.
        result = compiler(*arguments, "--message-format=json", status=0)
        assert {message["severity"] for message in messages_of(result.stderr)} == {"note"}
        return
    result = compiler(*arguments, "--message-format=json", status=status)
    assert messages_of(result.stderr)[-1]["class"] == word


def test_a_program_keeps_its_own_words_for_options(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "m.c").write_text(
        "#include <stdio.h>\nint main(int c, char **v) { return puts(v[c - 1]) < 0; }\n"
    )
    result = compiler("run", "-q", "m.c", "--", "--message-format=json", status=0)
    assert result.stdout == "--message-format=json\n"


def test_colours_are_for_terminals(mlir_offload: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    (tmp_path / "k.mlir").write_text(BAD)

    def on_terminal(**more: str) -> bytes:
        ours, theirs = pty.openpty()
        command = [*mlir_offload, "-c", HOST, "k.mlir"]
        with subprocess.Popen(
            command, cwd=tmp_path, env={**environment, **more}, stderr=theirs
        ) as child:
            os.close(theirs)
            said = b""
            try:
                while part := os.read(ours, 4096):
                    said += part
            except OSError:
                pass  # So ends a terminal whose other side is closed.
            child.wait()
        os.close(ours)
        return said

    assert b"\033[0;1;31merror: " in on_terminal()
    assert b"\033" not in on_terminal(NO_COLOR="1")


def test_clang_prints_in_colour_on_a_terminal_and_machines_get_none(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "m.c").write_text("int main(void) { return x; }\n")
    text = compiler("-c", "-fcolor-diagnostics", "m.c", status=1).stderr
    printed = subprocess.run(
        ["/usr/lib/llvm-22/bin/clang", "-c", "-fcolor-diagnostics", "m.c"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    assert text == printed
    assert "\033[0;1;31merror: " in text
    arguments = ("-c", "-fcolor-diagnostics", "--message-format=json", "m.c")
    (error,) = messages_of(compiler(*arguments, status=1).stderr)
    assert (error["line"], error["column"], error["class"]) == (1, 25, "source")


def test_sarif_has_the_fix_of_a_misspelled_operation(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text("func.func @f(%a: f32) {\n  %0 = arith.adff %a, %a : f32\n}\n")
    result = compiler("-c", HOST, "--message-format=sarif", "k.mlir", status=1)
    document = json.loads(result.stderr)
    jsonschema.validate(document, SARIF_SUBSET)
    (found,) = document["runs"][0]["results"]
    region = {"startLine": 2, "startColumn": 8, "endColumn": 18}
    assert found["locations"][0]["physicalLocation"]["region"] == region
    (change,) = found["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {"deletedRegion": region, "insertedContent": {"text": "arith.addf"}}
    ]
