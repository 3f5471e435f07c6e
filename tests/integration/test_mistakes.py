"""Mistakes as users make them, and all that the compiler prints about each: mistakes.txt.

A case is a title, files, and commands, each with its exit status and its output. `python
tests/integration/test_mistakes.py` writes the outputs anew, for a review with `git diff`;
titles as arguments limit it to those cases.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Struct

from mlir_offload.driver.cli import main
from mlir_offload.driver.message.report import MessageOptions, report

CASES = Path(__file__).with_name("mistakes.txt")
_FILE = re.compile(r"^--- (.*)\n", re.MULTILINE)
_CALL = re.compile(r"^\$ mlir-offload (.*)\n(?:exit status (\d+)\n)?", re.MULTILINE)
# What the machine has is not what is tested.
ENVIRONMENT = {"MLIR_OFFLOAD_JOBS": "2", "LC_ALL": "C.UTF-8"}
pytestmark = pytest.mark.llvm(22)


class Call(Struct, frozen=True):
    """A command line with what it printed and its exit status."""

    line: str
    status: int
    output: str


class Mistake(Struct, frozen=True):
    """Files, and calls of the compiler in their directory."""

    title: str
    files: dict[str, str]
    calls: tuple[Call, ...]


def read_mistakes() -> list[Mistake]:
    """Return the cases of the file."""
    parts = re.split(r"^# (?=\w)", CASES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [_mistake(part) for part in parts[1:]]


def _mistake(text: str) -> Mistake:
    title, _, rest = text.partition("\n")
    files, *calls = re.split(r"(?=^\$ )", rest, flags=re.MULTILINE)
    names = _FILE.split(files)[1:]
    contents = dict(zip(names[::2], names[1::2], strict=True))
    return Mistake(
        title,
        {name.encode().decode("unicode_escape"): text for name, text in contents.items()},
        tuple(_call(text) for text in calls),
    )


def _call(text: str) -> Call:
    match = _CALL.match(text)
    assert match, text
    return Call(match[1], int(match[2] or 0), text[match.end() :].rstrip("\n"))


def write_files(mistake: Mistake, folder: Path) -> None:
    """Write the files of a case."""
    for name, text in mistake.files.items():
        (folder / name).write_text(text, encoding="utf-8")


def words_of(call: Call) -> list[str]:
    """Return the command line of a call."""
    return [word.encode().decode("unicode_escape") for word in shlex.split(call.line)]


def reported(call: Call, status: int, printed: str, folder: Path) -> Call:
    """Return a call as it is now, with what it printed to standard output and then to standard error."""
    return Call(call.line, status, printed.replace(str(folder), "DIR").rstrip("\n"))


@pytest.mark.parametrize("mistake", read_mistakes(), ids=lambda mistake: mistake.title)
def test_a_mistake_is_told_as_in_the_file(
    mistake: Mistake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # In this process: one of its own for each call would load the driver again.
    ended: list[int] = []
    monkeypatch.setattr("mlir_offload.driver.cli._leave", ended.append)
    write_files(mistake, tmp_path)
    for call in mistake.calls:
        main(words_of(call))
        report().options = MessageOptions()
        printed = capfd.readouterr()
        assert reported(call, ended.pop(), printed.out + printed.err, tmp_path) == call


def _render(mistake: Mistake, calls: Sequence[Call]) -> str:
    files = "".join(
        f"--- {name.encode('unicode_escape').decode()}\n{text}"
        for name, text in mistake.files.items()
    )
    blocks = (
        f"$ mlir-offload {call.line}\nexit status {call.status}\n{call.output}\n" for call in calls
    )
    return f"# {mistake.title}\n{files}" + "\n".join(blocks)


def _run(mistake: Mistake, folder: Path) -> list[Call]:
    """Return what the calls of a case do now, each in a process of its own."""
    write_files(mistake, folder)
    calls = []
    for call in mistake.calls:
        done = subprocess.run(
            [sys.executable, "-m", "mlir_offload.driver", *words_of(call)],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
            check=False,
        )
        calls.append(reported(call, done.returncode, done.stdout + done.stderr, folder))
    return calls


def _renew(titles: Sequence[str]) -> None:
    parts = [CASES.read_text(encoding="utf-8").partition("\n# ")[0]]
    for mistake in read_mistakes():
        if titles and mistake.title not in titles:
            parts.append(_render(mistake, mistake.calls))
            continue
        with tempfile.TemporaryDirectory() as folder:
            parts.append(_render(mistake, _run(mistake, Path(folder))))
    text = "\n\n".join(part.strip("\n") for part in parts)
    CASES.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    _renew(sys.argv[1:])
