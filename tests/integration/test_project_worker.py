"""A worker of a build at a signal: the step that it runs ends first, with what it has made."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.llvm(22)
SAXPY = Path(__file__).resolve().parents[2] / "docs" / "examples" / "saxpy.mlir"
WORKER = (sys.executable, "-P", "-m", "mlir_offload.driver.worker", "mlir-offload", "")
# A tool that ends when it is allowed to, after it has heard of the signal.
LAUNCHER = """\
#!{python}
import os, signal, sys
# Blocked from the start: a signal that comes before it is waited for is not lost.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
events, release = os.open("events", os.O_WRONLY), os.open("release", os.O_RDONLY)
os.write(events, b"s")
signal.sigtimedwait([signal.SIGTERM], {longest_s})
os.write(events, b"h")
os.read(release, 1)
sys.exit(1)
"""
# Of a test that fails only.
LONGEST_S = 600


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_worker_ends_after_the_step_that_a_signal_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    launcher, temporary = tmp_path / "launcher", tmp_path / "temporary"
    launcher.write_text(LAUNCHER.format(python=sys.executable, longest_s=LONGEST_S))
    launcher.chmod(0o755)
    temporary.mkdir()
    for name in ("events", "release"):
        os.mkfifo(tmp_path / name)
    # Open for reading and writing, so that no side waits for the other to open it.
    events, release = (os.open(tmp_path / name, os.O_RDWR) for name in ("events", "release"))
    with subprocess.Popen(
        WORKER,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        answers = worker.stdout.fileno()
        words = [
            "-c",
            "-j1",
            "--offload-arch=host",
            "--launcher=./launcher",
            str(SAXPY),
            "-o",
            "a.o",
        ]
        worker.stdin.write(json.dumps(words).encode() + b"\n")
        worker.stdin.flush()

        def next_event() -> bytes:
            ready, _, _ = select.select([events, answers], [], [], LONGEST_S)
            assert ready == [events], "the worker ended, or answered"
            return os.read(events, 1)

        assert next_event() == b"s"
        assert list(temporary.iterdir()) != []
        worker.send_signal(number)
        assert next_event() == b"h"
        os.write(release, b".")
        assert worker.wait(timeout=LONGEST_S) == 1
        assert list(temporary.iterdir()) == []
    for descriptor in (events, release):
        os.close(descriptor)
    assert not (tmp_path / "a.o").exists()
