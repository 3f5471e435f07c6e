"""The compiler that most tests use: in a fork of a process, if the result is the same."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.warm_driver import warm_driver

pytestmark = pytest.mark.llvm(22)
SAXPY = Path(__file__).resolve().parents[2] / "docs" / "examples" / "saxpy.mlir"


@pytest.fixture(scope="module")
def command() -> Iterator[list[str]]:
    """Return the command, with a program that prints its arguments in place of a fresh process."""
    with warm_driver(["/bin/echo", "-m", "fresh"]) as command:
        yield command


def _run(command: list[str], *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    argv = [*command, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, **how)


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


@pytest.mark.parametrize(
    "how",
    [
        {"preexec_fn": _limited},
        {"start_new_session": True},
        {"env": {**os.environ, "PYTHONHASHSEED": "1"}},
        {"env": {"PATH": "/usr/bin"}},
        {"close_fds": False},
        {"preexec_fn": lambda: os.close(2)},
        {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)},
    ],
    ids=["limit", "session", "variable", "no variables", "descriptors", "closed", "ignored signal"],
)
def test_what_a_fork_would_not_take_over_makes_a_fresh_process(
    command: list[str], how: Mapping[str, Any]
) -> None:
    ends = os.pipe2(0)
    try:
        assert _run(command, "--version", **how).stdout == "-m fresh --version\n"
    finally:
        for end in ends:
            os.close(end)


def test_a_fork_has_directory_variables_mask_and_streams_of_its_call(
    command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "k.mlir").write_bytes(SAXPY.read_bytes())
    environment = {**os.environ, "MLIR_OFFLOAD_ARCH": "host"}
    words = ("-c", "", "k.mlir", "-o", "k.o")
    assert "an argument is empty" in _run(command, *words, cwd=tmp_path, env=environment).stderr
    done = _run(command, *words[:1], *words[2:], cwd=tmp_path, env=environment, umask=0o077)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "k.o").stat().st_mode & 0o777 == 0o600


def test_a_signal_reaches_the_compiler(command: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "k.h"
    os.mkfifo(pipe)
    (tmp_path / "k.c").write_text('#include "k.h"\n')
    child = subprocess.Popen([*command, "-c", "k.c"], cwd=tmp_path, stderr=subprocess.PIPE)
    # clang has opened the pipe and waits.
    with pipe.open("wb"):
        child.send_signal(signal.SIGTERM)
        assert child.communicate(timeout=600)[1] == b"mlir-offload: interrupted\n"
    assert child.returncode == 130
