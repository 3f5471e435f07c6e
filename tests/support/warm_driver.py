"""Run the compiler in forks of one process that has loaded its modules, like the workers of a build.

Starting Python takes most of the time of an invocation. A fork begins in the state that
`python -m mlir_offload.driver` reaches after that: with modules loaded and regular expressions compiled.

usage: python warm_driver.py SOCKET
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import mlir_offload
from mlir_offload.driver import __main__, cli
from mlir_offload.toolchain.pattern import _LazyPattern

_CLIENT = Path(__file__).with_name("warm_client.c")
_CLANG = "/usr/lib/llvm-22/bin/clang"
_HEAD, _NUMBER = struct.Struct("=IIII"), struct.Struct("=i")
_HANDED = 4
# gRPC does not work after a fork, and may not be installed.
_ALONE = "mlir_offload.driver.remote"
# Modules that our code imports in functions.
_LIBRARIES = (
    "click",
    "llvmlite.binding",
    "msgpack",
    "rich.console",
    "rich.table",
    "yaml",
    "zstandard",
)


@contextlib.contextmanager
def warm_driver(fresh: Sequence[str], **variables: str) -> Iterator[list[str]]:
    """Yield the command of a compiler that starts fast; `fresh` is the one that starts Python.

    `variables` must include variables that Python reads at its start, with the values of later invocations.
    """
    if not Path(_CLANG).exists():
        yield [*fresh]
        return
    with tempfile.TemporaryDirectory() as folder:
        client, path = f"{folder}/client", f"{folder}/socket"
        subprocess.run([_CLANG, "-O1", "-Wall", "-Werror", _CLIENT, "-o", client], check=True)
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            cwd="/",
        )
        assert server.stdout is not None
        with server:
            assert server.stdout.readline() == b"ready\n"
            try:
                yield [client, path, *fresh]
            finally:
                server.terminate()


def _serve(path: str) -> None:
    for module in pkgutil.walk_packages(mlir_offload.__path__, "mlir_offload."):
        if not module.name.startswith(_ALONE):
            importlib.import_module(module.name)
    for name in _LIBRARIES:
        importlib.import_module(name)
    for found in gc.get_objects():
        if isinstance(found, _LazyPattern):
            found.pattern  # noqa: B018 (the first use compiles it)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(path)
        listener.listen(64)
        _Server(listener, selector).run()


class _Server:
    """Forks for each connection, and sends the status of the fork."""

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        self._listener = listener
        self._selector = selector
        self._calls: dict[int, socket.socket] = {}
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> NoReturn:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._start(self._listener.accept()[0])
                elif key.fileobj == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                else:
                    self._abandon(key.data)

    def _start(self, connection: socket.socket) -> None:
        head, handed, *_ = socket.recv_fds(connection, _HEAD.size, _HANDED)
        if not head:
            # Without a request, the client starts Python itself.
            connection.close()
            return
        size, count, mask, group = _HEAD.unpack(head)
        content = bytearray()
        while len(content) < size:
            content += connection.recv(size - len(content))
        pid = os.fork()
        if pid == 0:
            self._listener.close()
            self._selector.close()
            for other in self._calls.values():
                other.close()
            connection.close()
            signal.set_wakeup_fd(-1)
            os.close(self._woken)
            os.close(self._waker)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.umask(mask)
            os.setpgid(0, group)
            _be_driver(bytes(content).split(b"\0")[:-1], count, handed)
        for descriptor in handed:
            os.close(descriptor)
        self._calls[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ, pid)
        with contextlib.suppress(OSError):
            connection.sendall(_NUMBER.pack(pid))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                connection = self._calls.pop(ended[0])
                with contextlib.suppress(KeyError):
                    self._selector.unregister(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(_NUMBER.pack(ended[1]))
                connection.close()

    def _abandon(self, pid: int) -> None:
        """Kill the driver, because its client was killed."""
        if pid in self._calls:
            os.kill(pid, signal.SIGKILL)
            self._selector.unregister(self._calls[pid])


def _be_driver(words: Sequence[bytes], count: int, handed: Sequence[int]) -> NoReturn:
    pairs = (variable.partition(b"=") for variable in words[count:])
    os.environb.clear()
    os.environb.update({name: value for name, _, value in pairs})
    for number, descriptor in enumerate(handed[:3]):
        os.dup2(descriptor, number)
    os.fchdir(handed[3])
    for descriptor in handed:
        os.close(descriptor)
    sys.argv = [__main__.__file__, *map(os.fsdecode, words[:count])]
    status = 1
    try:
        cli.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (nothing may return into the loop of the parent)
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1])
