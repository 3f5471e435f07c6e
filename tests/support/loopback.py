"""Servers of other programs on the loopback interface, as plain processes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

# Below those that the system hands out: no connection of another program takes one meanwhile.
_FIRST_PORT, _PORTS, _APART = 10_000, 20_000, 37
_LONGEST_S = 120
_tried = count()


def free_port() -> int:
    """Return a port that nobody listens at, and that no other call returned."""
    while True:
        port = _FIRST_PORT + (os.getpid() * _APART + next(_tried)) % _PORTS
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextlib.contextmanager
def running(
    words: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a server; kill it in the end, also where it was stopped."""
    process = subprocess.Popen(
        [str(word) for word in words],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_port(port: int, process: subprocess.Popen[str]) -> None:
    """Return when the server takes connections."""
    for _ in attempts(process):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return


def attempts(process: subprocess.Popen[str]) -> Iterator[int]:
    """Yield until the caller is content; fail where the server ends or takes too long."""
    deadline = time.monotonic() + _LONGEST_S
    for number in count():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"no answer from {process.args!r}"
        yield number
        time.sleep(0.02)
