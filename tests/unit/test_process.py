"""Commands as values, and the only module that starts programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mlir_offload.toolchain.errors import ToolchainError, ToolFailedError
from mlir_offload.toolchain.process import (
    Command,
    Completed,
    ProcessRunner,
    describe_status,
    run_checked,
    tool_failed,
)

SHELL = "/bin/sh"


def shell(script: str, **changes: str) -> Command:
    return Command((SHELL, "-c", script), environment=tuple(changes.items()))


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (Command(("clang", "a b.c", "-o", "it's")), """clang 'a b.c' -o 'it'"'"'s'"""),
        (Command(("clang",), environment=(("X", "1 2"),)), "env X='1 2' clang"),
        (Command(("clang",), cwd=Path("/a b")), "(cd '/a b' && clang)"),
    ],
    ids=["quotes", "environment", "directory"],
)
def test_a_command_prints_as_a_line_for_a_shell(command: Command, line: str) -> None:
    assert str(command) == line


def test_the_printed_line_does_what_the_command_does(tmp_path: Path) -> None:
    folder = tmp_path / "a 'b' é"
    folder.mkdir()
    command = Command(
        (SHELL, "-c", 'printf "%s|" "$PWD" "$X"'), environment=(("X", '"$HOME"'),), cwd=folder
    )
    runner = ProcessRunner()
    assert (
        runner.run(shell(str(command))).stdout == runner.run(command).stdout == f'{folder}|"$HOME"|'
    )


def test_output_status_and_input_are_kept() -> None:
    completed = ProcessRunner().run(shell("cat; echo no >&2; exit 3"), input_text="yes")
    assert (completed.returncode, completed.stdout, completed.stderr) == (3, "yes", "no\n")


def test_a_program_without_input_reads_nothing() -> None:
    assert ProcessRunner().run(shell("cat")).stdout == ""


def test_the_environment_is_added_to_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MO_KEPT", "kept")
    completed = ProcessRunner().run(shell("echo $MO_KEPT $MO_ADDED", MO_ADDED="added"))
    assert completed.stdout == "kept added\n"
    assert "MO_ADDED" not in os.environ


def test_output_that_is_no_utf8_does_not_fail() -> None:
    completed = ProcessRunner().run(shell(r"printf '\377x'"))
    assert completed.stdout.encode("utf-8", "surrogateescape") == b"\xffx"


def test_a_signal_is_reported_as_a_negative_status() -> None:
    completed = ProcessRunner().run(shell("kill -SEGV $$"))
    assert completed.returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(None, "No such file"), (0o644, "Permission denied"), (0o755, "Exec format error")],
    ids=["absent", "not executable", "no program"],
)
def test_a_program_that_cannot_be_started_is_an_error_with_the_reason(
    tmp_path: Path, mode: int | None, reason: str
) -> None:
    program = tmp_path / "tool"
    if mode is not None:
        program.write_bytes(b"\x00\x01")
        program.chmod(mode)
    with pytest.raises(ToolchainError, match=reason):
        ProcessRunner().run(Command((str(program),)))


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="No such file"):
        ProcessRunner().run(Command((SHELL, "-c", ":"), cwd=tmp_path / "absent"))


@pytest.mark.parametrize(
    ("script", "status"), [("exit 7", 7), ("kill -KILL $$", 128 + 9)], ids=["exit", "signal"]
)
def test_an_attached_program_gives_its_status_as_a_shell_would(script: str, status: int) -> None:
    assert ProcessRunner().run_attached(shell(script)) == status


def test_an_attached_program_sees_the_added_environment_and_the_directory(tmp_path: Path) -> None:
    command = Command(
        (SHELL, "-c", 'test "$MO_ADDED" = yes && test -e here'),
        environment=(("MO_ADDED", "yes"),),
        cwd=tmp_path,
    )
    (tmp_path / "here").touch()
    assert ProcessRunner().run_attached(command) == 0


def test_an_attached_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="No such file"):
        ProcessRunner().run_attached(Command((str(tmp_path / "absent"),)))


def test_stopping_ends_the_children_and_what_they_started(tmp_path: Path) -> None:
    runner = ProcessRunner()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The grandchild keeps standard output open: run() returns only after it has ended as well.
    command = shell(f"cat {fifo} & echo started > {fifo}.ready; wait")
    interrupted: list[bool] = []

    def run() -> None:
        with pytest.raises(KeyboardInterrupt):
            runner.run(command)
        interrupted.append(True)

    thread = threading.Thread(target=run, daemon=True)
    os.mkfifo(f"{fifo}.ready")
    thread.start()
    assert Path(f"{fifo}.ready").read_text() == "started\n"
    runner.stop()
    thread.join(timeout=600)
    assert not thread.is_alive(), "something that the child started still runs"
    assert interrupted
    with pytest.raises(KeyboardInterrupt):
        runner.run(shell(":"))


@pytest.mark.parametrize("script", ["sleep 600", "trap '' TERM; sleep 600 & wait; sleep 600"])
def test_a_program_that_takes_too_long_is_ended(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlir_offload.toolchain.process._GRACE_S", 0.2)
    with pytest.raises(ToolFailedError, match=r"sh did not end within 0\.3 s"):
        ProcessRunner().run(Command((SHELL, "-c", script), limit_s=0.3))


def test_a_failed_program_is_an_error_with_its_first_complaint() -> None:
    script = "echo note: fine >&2; echo 'a.mlir:1:2: error: bad' >&2; exit 1"
    with pytest.raises(ToolFailedError) as caught:
        run_checked(ProcessRunner(), shell(script))
    assert caught.value.message == "sh failed (exit status 1): a.mlir:1:2: error: bad"
    assert "note: fine" in caught.value.stderr
    assert caught.value.command.startswith("/bin/sh -c")


def test_a_program_that_succeeds_is_returned() -> None:
    assert run_checked(ProcessRunner(), Command((sys.executable, "-c", "print(1)"))).stdout == "1\n"


def test_a_program_that_fails_in_silence_still_names_its_status() -> None:
    error = tool_failed(Completed(Command(("/x/opt",)), -9, "", ""))
    assert error.message == "opt failed (killed by SIGKILL)"


@pytest.mark.parametrize(
    ("status", "text"),
    [(0, "exit status 0"), (2, "exit status 2"), (-11, "killed by SIGSEGV"), (-99, "signal 99")],
)
def test_a_status_is_described(status: int, text: str) -> None:
    assert text in describe_status(status)


def test_an_interrupt_while_a_child_is_being_started_ends_that_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = ProcessRunner()
    started: list[subprocess.Popen[str]] = []

    def open_and_interrupt(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        started.append(real(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", open_and_interrupt)
    previous = signal.signal(signal.SIGINT, lambda _number, _frame: runner.interrupt())
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run(Command(("sleep", "600")))
    finally:
        signal.signal(signal.SIGINT, previous)
    for stream in (started[0].stdout, started[0].stderr):
        assert stream is not None
        stream.close()
    assert started[0].wait(60) == -signal.SIGTERM
