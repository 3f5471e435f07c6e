"""The subcommand build on a terminal, in a pipe, and for machines: the bar, Ctrl-C, one form of messages."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.project import open_once_read, run_in

pytestmark = pytest.mark.llvm(22)
MANIFEST = """\
flags: --llvm=22
modules: [NAMES]
targets:
  libx.a: {kind: static, inputs: [a.c]}
"""
WRONG = 'func.func @f() {\n  %0 = "foo.bar"() : () -> i32\n  return\n}\n'
HIDES, SHOWS, BAR = b"\x1b[?25l", b"\x1b[?25h", "━".encode()
LONGEST_S = 600


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "offload.yaml").write_text(MANIFEST.replace("NAMES", ""))
    (tmp_path / "a.c").write_text("int a;\n")
    return tmp_path


@contextmanager
def terminal(
    folder: Path, command: list[str], environment: Mapping[str, str], columns: int = 80
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a command as a shell does, in the foreground of a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    child = subprocess.Popen(
        command,
        cwd=folder,
        env={**kept, "TERM": "xterm", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509 (no thread of ours is running)
    )
    os.close(theirs)
    try:
        yield ours, child
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def read_all(descriptor: int) -> bytes:
    said = b""
    # So ends a terminal whose other side is closed.
    with suppress(OSError):
        while part := os.read(descriptor, 4096):
            said += part
    return said


@pytest.mark.parametrize(
    ("environment", "options", "columns", "has_bar", "has_color"),
    [
        ({}, (), 80, True, True),
        ({"NO_COLOR": "1"}, (), 80, True, False),
        ({}, ("-fdiagnostics-color=never",), 80, True, False),
        ({}, (), 24, True, True),
        ({"TERM": "dumb"}, (), 80, False, False),
        ({}, ("-q",), 80, False, False),
        ({}, ("--message-format=json",), 80, False, False),
    ],
    ids=["plain", "NO_COLOR", "never", "narrow", "dumb", "quiet", "json"],
)
def test_a_bar_is_for_people_at_terminals_that_can_show_it(  # noqa: PLR0913, PLR0917
    project: Path,
    mlir_offload: list[str],
    environment: dict[str, str],
    options: tuple[str, ...],
    columns: int,
    has_bar: bool,  # noqa: FBT001 (a parameter of the test)
    has_color: bool,  # noqa: FBT001
) -> None:
    command = [*mlir_offload, "build", *options]
    with terminal(project, command, environment, columns) as (ours, child):
        said = read_all(ours)
        assert child.wait(timeout=LONGEST_S) == 0, said
    assert (HIDES in said, SHOWS in said, BAR in said) == (has_bar,) * 3
    assert (b"\x1b[3" in said or b"\x1b[9" in said) == has_color
    assert (b"2 steps built" in said) == (options != ("-q",))
    if not has_bar:
        assert b"\x1b" not in said


def test_in_a_pipe_there_is_one_line_and_quietly_none(
    project: Path, mlir_offload: list[str]
) -> None:
    done = run_in(project, [*mlir_offload, "build"], {"TERM": "xterm"})
    assert done.stderr.startswith("mlir-offload: 2 steps built, 0 current in ")
    assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert run_in(project, [*mlir_offload, "build", "-q"]).stderr == ""


def test_ctrl_c_gives_the_terminal_back(project: Path, mlir_offload: list[str]) -> None:
    (project / "a.c").write_text('#include "gate.h"\n')
    os.mkfifo(project / "gate.h")
    temporary = project / "tmp"
    temporary.mkdir()
    with terminal(project, [*mlir_offload, "build"], {"TMPDIR": str(temporary)}) as (ours, child):
        gate = open_once_read(project / "gate.h")
        os.write(ours, b"\x03")
        said = read_all(ours)
        status = child.wait(timeout=LONGEST_S)
        os.close(gate)
    assert status == 130
    assert said.rindex(SHOWS) > said.rindex(HIDES)
    assert said.rstrip().endswith(b"mlir-offload: interrupted")
    assert list(temporary.iterdir()) == []
    assert not list((project / "build").rglob("*.o"))


def test_what_steps_say_comes_in_the_form_that_is_asked_for(
    project: Path, mlir_offload: list[str]
) -> None:
    (project / "offload.yaml").write_text("archs: host\n" + MANIFEST.replace("NAMES", "w.mlir"))
    (project / "w.mlir").write_text(WRONG)
    command = [*mlir_offload, "build", "--report=r.json"]
    done = run_in(project, [*command, "--message-format=json"])
    assert done.returncode == 1
    said = [json.loads(line) for line in done.stderr.splitlines()]
    error = next(message for message in said if message["severity"] == "error")
    assert (error["file"], error["line"], error["stage"]) == ("w.mlir", 2, "lower")
    assert error["tool"] == "mlir-opt"
    report = json.loads((project / "r.json").read_text())
    failed = next(step for step in report["steps"] if step["outcome"] == "failed")
    assert failed["message"].startswith("w.mlir:2:17: error: ")
    done = run_in(project, [*command, "--message-format=github"])
    assert "\n::error file=w.mlir,line=2," in done.stderr
    done = run_in(project, [*command, "--message-format=sarif", "--message-file=m.sarif"])
    results = json.loads((project / "m.sarif").read_text())["runs"][0]["results"]
    assert [result["level"] for result in results if result["level"] == "error"] == ["error"]
    assert "w.mlir:2:17: error: " in done.stderr


def test_closed_standard_streams_are_nobodys(project: Path, mlir_offload: list[str]) -> None:
    compile_c = [*mlir_offload, "--llvm=22", "-c", "a.c", "-o", "a.o"]
    for command, status in (
        ([*mlir_offload, "--version"], 0),
        (compile_c, 0),
        ([*compile_c, "-x"], 2),
    ):
        closed = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
        assert run_in(project, closed).returncode == status
    assert (project / "a.o").read_bytes()[:4] == b"\x7fELF"
