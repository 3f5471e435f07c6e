"""Measure the client's overhead for building 60 modules for three architectures on remote workers.

usage: python tests/bench/remote.py [--modules N] [--workers N] [--directory DIR]

The client's processor time is that of `build` and its children; its bytes are counted by a relay between it
and the server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from support.loopback import free_port  # noqa: E402 (found by the line above)
from support.project import digests, write_project  # noqa: E402
from support.remote_server import INSTANCE, build_grid, write_command  # noqa: E402

COMMAND = [sys.executable, "-m", "mlir_offload.driver", "build"]
MANIFEST = "archs: [sm_80, sm_90, host]\nflags: --llvm=22\nmodules: ['m*.mlir']\n"
ENDINGS = (".o", ".images", ".host", ".device")


@dataclass
class Relay:
    """Forwards connections to a port, and counts the bytes in both directions."""

    target: int
    port: int = field(default_factory=free_port)
    sent: int = 0
    received: int = 0

    def serve(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", self.target))
            for words in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._copy, args=words, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, sends: bool) -> None:  # noqa: FBT001
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
                self.sent += len(data) * sends
                self.received += len(data) * (not sends)
            target.shutdown(socket.SHUT_WR)

    def take(self) -> tuple[int, int]:
        """Return the bytes counted since the last call."""
        found = self.sent, self.received
        self.sent = self.received = 0
        return found


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def timed(folder: Path, *options: str) -> tuple[float, float, int]:
    """Return the wall time and processor time in seconds, and the number of steps of a build."""
    begin = time.monotonic()
    with (folder / "log").open("wb") as log:
        words = [*COMMAND, "--report=report.json", *options]
        child = subprocess.Popen(words, cwd=folder, stderr=log)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit((folder / "log").read_text())
    steps = len(json.loads((folder / "report.json").read_text())["steps"])
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, steps


@contextlib.contextmanager
def relayed(port: int) -> Iterator[Relay]:
    relay = Relay(port)
    threading.Thread(target=relay.serve, daemon=True).start()
    yield relay


def measure(place: Path, modules: int, workers: int) -> None:
    local = write_project(place / "local", MANIFEST, modules)
    for name in ("first", "second"):
        shutil.copytree(local, place / name)
    (place / "grid").mkdir()
    with contextlib.ExitStack() as stack:
        grid = stack.enter_context(build_grid(place / "grid"))
        relay = stack.enter_context(relayed(grid.port))
        command = write_command(place / "command")
        options = (f"--remote=grpc://127.0.0.1:{relay.port}/{INSTANCE}", grid.options[1])
        with contextlib.ExitStack() as farm:
            for number in range(workers):
                farm.enter_context(grid.worker(f"worker{number}", command))
            show("first client", timed(place / "first", *options), relay.take())
        show("second client, no worker", timed(place / "second", *options), relay.take())
    show("this machine alone", timed(local, "-j2"), (0, 0))
    made = digests(local / "build", *ENDINGS)
    for name in ("first", "second"):
        say(f"{name}: bytes equal: {digests(place / name / 'build', *ENDINGS) == made}")


def show(name: str, taken: tuple[float, float, int], counted: tuple[int, int]) -> None:
    seconds, cpu, steps = taken
    sent, received = (number / steps / 1000 for number in counted)
    say(
        f"{name}: {steps} steps in {seconds:.1f} s; of this process and its children"
        f" {1000 * cpu / steps:.1f} ms of processor time, {sent:.1f} kB sent and"
        f" {received:.1f} kB received per step"
    )


def run_bench(text: str | None, measure_it: Callable[[Path, int, int], None]) -> None:
    """Run the measurement that the command line selects, in a temporary directory."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--modules", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT / ".importroot")
    with tempfile.TemporaryDirectory(dir=given.directory) as place:
        measure_it(Path(place), given.modules, given.workers)


if __name__ == "__main__":
    run_bench(__doc__, measure)
