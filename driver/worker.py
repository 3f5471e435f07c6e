"""A process that runs the steps of a project, each in a fork, so that their modules are loaded once.

usage: python -m mlir_offload.driver.worker PROGRAM SERVERS KIND...

SERVERS are the fork servers of the build, as JSON (`SharedServers`), or an empty string.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import IO, NoReturn

from msgspec import Struct, field

from mlir_offload.driver.build.subcommand import modules_for
from mlir_offload.driver.cli import main
from mlir_offload.driver.tools.toolchain_id import own_identity
from mlir_offload.toolchain.fork_server import ForkServers, SharedServers
from mlir_offload.toolchain.tables import decoded
from mlir_offload.toolchain.target import Kind

_Handler = Callable[[int, FrameType | None], object] | int | None
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Modules that most programs need in addition to those of every compilation.
_OFTEN = ("mlir_offload.driver.project.step", "mlir_offload.translate.host.interface", "yaml")


def serve(program: str, servers: str, kinds: Sequence[str]) -> None:
    """Run the steps from standard input, a JSON list of arguments per line; print status and output of each."""
    for name in (*_OFTEN, *modules_for(frozenset(map(Kind, kinds)), links=True)):
        importlib.import_module(name)
    own_identity()
    # The path by which the user started the driver, because steps may start it again.
    sys.argv[0] = program
    # Keeps the pages of the loaded modules shared between this process and its forks.
    gc.freeze()
    shared = decoded(servers.encode(), SharedServers) if servers else None
    worker = _Worker(shared.open() if shared is not None else None)
    worker.listen()
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said:
            status = worker.run(json.loads(line), said)
            said.seek(0)
            text = said.read().decode("utf-8", "surrogateescape")
        sys.stdout.write(json.dumps([status, text]) + "\n")
        sys.stdout.flush()


class _Worker(Struct):
    """Runs one step at a time. It ends after the step, so that an interrupted step still removes its files."""

    fork_servers: ForkServers | None
    child: int = 0
    must_end: bool = False
    previous: dict[int, _Handler] = field(default_factory=dict)

    def listen(self) -> None:
        """Handle signals: end after the current step."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.previous[number] = signal.signal(number, self._hear)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.must_end = True
        if not self.child:
            raise SystemExit(128 + number)
        # A signal to the process group misses a step that has just been forked.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, number)

    def run(self, arguments: Sequence[str], said: IO[bytes]) -> int:
        """Return the exit status of the step, or the negative number of the signal that ended it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self.child = os.fork()
        if self.child == 0:
            for number, handler in self.previous.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            _be_driver(arguments, said, self.fork_servers)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _, status = os.waitpid(self.child, 0)
        self.child = 0
        if self.must_end:
            raise SystemExit(1)
        return os.waitstatus_to_exitcode(status)


def _be_driver(
    arguments: Sequence[str], said: IO[bytes], fork_servers: ForkServers | None
) -> NoReturn:
    status = 1
    try:
        empty = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((empty, 0), (said.fileno(), 1), (said.fileno(), 2)):
            os.dup2(source, target)
        main(arguments, fork_servers)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (nothing may return into the loop of the parent)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3:])
