"""Names and contents of files must control neither a terminal nor a CI system."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlir_offload.driver.cli import main
from mlir_offload.driver.message.escape import shown, shown_lines, shown_message

NAMES = {
    "command": "::set-output name=x::forged",
    "second line": "a\n::error::forged",
    "indented": "a\n  ::error::forged",
    "old command": "a##[error]forged",
    "azure": "##vso[task.setvariable variable=x]forged",
    "teamcity": "##teamcity[buildStop]forged",
    "colour": "\x1b[31mforged",
    "carriage return": "a\r::error::forged",
    "other direction": "a\u202eforged",
    "bytes": "a\udcffforged",
}
CALLS = {
    "compile": ["{name}.mlir"],
    "unknown kind": ["{name}"],
    "option": ["--{name}"],
    "response file": ["@{name}"],
    "configuration": ["--config={name}", "k.o"],
    "value": ["--offload-arch={name}", "-c", "k.mlir"],
    "inspect": ["inspect", "{name}.o"],
    "json": ["inspect", "--json", "{name}.o"],
    "extract": ["extract", "{name}.o"],
    "check": ["check", "--for-clang=22", "{name}.absent"],
    "package": ["package", "--for-clang=22", "-o", "x", "--image=file={name}.o,kind=cuda"],
    "bundle": ["bundle", "-o", "x", "{name}.c"],
    "link": ["link", "{name}.mob"],
    "build": ["build", "{name}.yaml"],
    "explain": ["explain", "{name}"],
    "trust": ["trust", "{name}"],
    "dry run": ["-###", "-c", "--offload-arch=host", "{name}.c"],
}
FORMS = ("text", "json", "github", "sarif")
OURS = ("::error ", "::error::", "::warning ", "::notice ", "::notice::")


def _commands(text: str) -> Iterator[str]:
    """Yield what a runner of GitHub, Azure Pipelines or TeamCity takes for a command."""
    for line in text.replace("\r", "\n").split("\n"):
        if line.lstrip().startswith("::"):
            yield line.lstrip()
        elif any(mark in line for mark in ("##[", "##vso[", "##teamcity[")):
            yield line


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", CALLS)
def test_a_name_forges_no_message(
    call: str,
    form: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mlir_offload.driver.cli._leave", lambda _: None)
    for name in NAMES.values():
        for ending in (".o", ".c"):
            Path(f"{name}{ending}").write_text("int x;\n")
        words = [word.format(name=name) for word in CALLS[call]]
        main([*words[:1], f"--message-format={form}", *words[1:]])
        out, err = capfd.readouterr()
        said = out + err
        assert said
        assert all(char.isprintable() or char in "\n\t" for char in said), repr(said)
        forged = [line for line in _commands(said) if form != "github" or not line.startswith(OURS)]
        assert forged == [], said
        if form == "text":
            assert not [line for line in said.splitlines() if line.startswith(("forged", "::"))]


@pytest.mark.llvm(22)
def test_a_name_forges_no_message_through_a_tool(tmp_path: Path, mlir_offload: list[str]) -> None:
    for name in ("a\n::error::forged.mlir", "##[error]forged.mlir", "\x1b[31m::error::x.mlir"):
        (tmp_path / name).write_text("func.func @f() { foo.bar }\n")
        for form in ("text", "json"):
            done = subprocess.run(
                [*mlir_offload, f"--message-format={form}", "-c", "--offload-arch=host", name],
                cwd=tmp_path,
                env={**os.environ, "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 1
            assert list(_commands(done.stderr)) == []
            assert "\x1b" not in done.stderr


def test_what_is_escaped_can_be_read() -> None:
    assert shown("kernel.mlir") == "kernel.mlir"
    assert shown("std::vector<int>, #2") == "std::vector<int>, #2"
    assert shown("::error::x") == "\\x3a:error::x"
    assert shown("a\nb\t\x1b") == "a\\nb\\t\\x1b"
    assert shown_lines("a\tb\n  ::x") == "a\tb\n  \\x3a:x"
    assert shown_message("2 errors:\n  a\nb") == "2 errors:\n  a\\nb"


def test_json_that_was_made_harmless_is_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    from mlir_offload.driver.message.json import render_output

    assert json.loads(render_output("a##[error]b"))["message"] == "a##[error]b"
    assert "##" not in render_output("a##[error]b")
    capfd.readouterr()
