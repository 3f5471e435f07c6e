"""The tutorials: each command runs in the order of its page, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "tutorial"
# Addresses, process and thread numbers, sizes, and versions of installed packages differ between machines.
VARIABLE = re.compile(
    r"0x[0-9a-f]+|(?<=pid=)\d+|\b(?<=T)\d+\b|[\d.]+(?= (?:[KM]iB|bytes|registers))"
    r"|(?<=KiB at )\d+|(?<=LLVM 19\.1\.)\d+"
)


class Block(NamedTuple):
    """A fenced code block of a page."""

    language: str
    text: str


class Step(NamedTuple):
    """A command of a page and the output below it."""

    command: str
    output: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(*pair) for pair in found]


def steps(block: Block) -> list[Step]:
    pieces = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Step(*piece.split("\n", 1)) for piece in pieces]


def pattern(shown: str) -> str:
    """Return a regular expression: a line '...' is any lines, '...' in a line any text."""
    rows = []
    for line in shown.splitlines():
        if line == "...":
            rows.append(r"(?:.*\n)*?")
        else:
            texts = [VARIABLE.split(text) for text in line.split("...")]
            rows.append(".*".join(r"[\w.]+".join(map(re.escape, text)) for text in texts) + r"\n")
    return "".join(rows)


def write_source(block: Block, folder: Path) -> None:
    """Write a file that names itself in its first line: '// hello.mlir'."""
    name = block.text.splitlines()[0].split()[1]
    (folder / name).write_text(block.text)


def environment(folder: Path, command: list[str]) -> dict[str, str]:
    """Return one with mlir-offload on PATH."""
    program = folder / "bin" / "mlir-offload"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.llvm(22)
@pytest.mark.llvm(19)
@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_commands_of_a_tutorial_print_what_it_shows(
    page: Path, mlir_offload: list[str], tmp_path: Path
) -> None:
    env = environment(tmp_path, mlir_offload)
    for block in blocks(page):
        if block.language in {"mlir", "c", "cmake"}:
            write_source(block, tmp_path)
        for step in steps(block) if block.language == "console" else ():
            done = subprocess.run(
                ["sh", "-c", f"exec 2>&1; {step.command}"],
                cwd=tmp_path,
                env=env,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            assert re.fullmatch(pattern(step.output), done.stdout), (step, done.stdout)
            assert done.returncode == 0 or " error: " in step.output, step


def test_the_first_readme_program_is_that_of_the_first_tutorial() -> None:
    readme = (ROOT / "README.md").read_text()
    (source,) = [
        block.text for block in blocks(PAGES / "1-first-kernel.md") if block.language == "mlir"
    ]
    lines = source.splitlines()[1:]
    assert "\n".join(f"    {line}" for line in lines) in readme


def test_an_output_differs_from_a_page_that_shows_another() -> None:
    assert re.fullmatch(pattern("a 1.5 KiB b\n...\nend ...\n"), "a 2 KiB b\nx\ny\nend here\n")
    assert re.fullmatch(pattern("one\ntwo\n"), "one\n") is None
    assert re.fullmatch(pattern("thread 1\n"), "thread 2\n") is None
