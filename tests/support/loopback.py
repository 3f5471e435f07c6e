"""Servers of other programs on the loopback interface, as plain processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

# Below the ephemeral ports of the system, so that no connection of another program uses one.
_FIRST_PORT, _PORTS, _APART = 10_000, 20_000, 37
_LONGEST_S = 600
_tried = count()


def free_port() -> int:
    """Return a port on which no program listens, and that no other call returned."""
    while True:
        port = _FIRST_PORT + (os.getpid() * _APART + next(_tried)) % _PORTS
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass(frozen=True)
class Server:
    """A running server, and the file with its output."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def said(self) -> str:
        """Return its output so far."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


@contextlib.contextmanager
def running(
    words: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a server; at the end, kill it and all processes that it started, also if it is stopped."""
    # A file, because a pipe might fill, or be kept open by processes that the server started.
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [str(word) for word in words],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Server(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_port(port: int, server: Server) -> None:
    """Return when the server accepts connections."""
    for _ in attempts(server):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return


def attempts(server: Server) -> Iterator[int]:
    """Yield until the caller stops; fail if the server ends or takes too long."""
    deadline = time.monotonic() + _LONGEST_S
    for number in count():
        assert server.process.poll() is None, server.said()
        assert time.monotonic() < deadline, f"no answer from {server.process.args!r}"
        yield number
        time.sleep(0.02)
