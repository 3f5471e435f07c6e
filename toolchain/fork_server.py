"""Load a program once, and fork it for each command.

Loading mlir-opt or clang, with the relocations and constructors of LLVM's libraries, takes 20 to 35 ms of processor
time; a fork of the loaded program takes 3 ms. A library that LD_PRELOAD loads into the program
(`data/fork_server.c`) waits for requests before main(). If that does not work, for example with a script or a
statically linked program, the caller starts the program normally.
"""

from __future__ import annotations

# `_socket` instead of `socket`, which makes enumerations of all its constants when it is imported (7 ms).
import _socket
import contextlib
import os
import select
import signal
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

SOURCE = Path(__file__).parent / "data" / "fork_server.c"
PROGRAM, MLIR_TRANSLATE = 0, 1
"""The entry point of a fork: main() of its program, or mlir-translate, whose code libMLIR contains."""

_SOCKET_VARIABLE = "MLIR_OFFLOAD_FORK_SERVER"
_PRELOAD = "LD_PRELOAD"
_HEADER = struct.Struct("=III")
_DESCRIPTORS = struct.Struct("=iiii")
_ANSWER = struct.Struct("=i")
_ELF = b"\x7fELF"
# Characters that separate names in LD_PRELOAD or are expanded there (ld.so(8)).
_NOT_IN_PRELOAD = frozenset(": \t\n$")


class Fork(Struct, eq=False):
    """A fork of a loaded program, in its own process group."""

    pid: int
    _answers: int
    _outputs: tuple[int, int]

    def wait(self, limit_s: float | None = None) -> int | None:
        """Wait for the end. Return the exit status (negative: signal), None if it is unknown or after the limit."""
        status = _read_answer(self._answers) if _wait_for(self._answers, limit_s) else None
        return None if status is None else os.waitstatus_to_exitcode(status)

    def printed(self) -> tuple[str, str]:
        """Return its standard output and standard error."""
        output, errors = (_read_text(descriptor) for descriptor in self._outputs)
        return output, errors

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._answers, *self._outputs):
            os.close(descriptor)


class ForkServer(Struct, eq=False):
    """A loaded program that waits for requests. `wait` waits until the program exits."""

    _requests: _socket.socket
    wait: Callable[[], object]

    def fork(
        self, entry: int, argv: tuple[str, ...], environment: Mapping[str, str], cwd: Path | None
    ) -> Fork | None:
        """Start a fork; return None if that fails."""
        words = (*argv, *(f"{name}={value}" for name, value in environment.items()))
        text = "".join(f"{word}\0" for word in words).encode("utf-8", "surrogateescape")
        message = _HEADER.pack(entry, len(argv), len(environment)) + text
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours, _no_errors():
            directory = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            theirs.callback(os.close, directory)
            answers, answer = os.pipe()
            ours.callback(os.close, answers)
            theirs.callback(os.close, answer)
            outputs = (os.memfd_create("stdout"), os.memfd_create("stderr"))
            for output in outputs:
                ours.callback(os.close, output)
            descriptors = _DESCRIPTORS.pack(directory, *outputs, answer)
            rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)
            self._requests.sendmsg([message], [rights])
            theirs.close()
            pid = _read_answer(answers)
            if pid:
                ours.pop_all()
                return Fork(pid, answers, outputs)
        return None

    @property
    def descriptor(self) -> int:
        """Return the descriptor of the socket that takes requests."""
        return self._requests.fileno()

    def close(self) -> None:
        """Make the server exit. Its forks continue."""
        self._requests.close()


def _no_errors() -> contextlib.AbstractContextManager[None]:
    """Suppress system errors, such as exhausted resources: starting the program normally reports them."""
    return contextlib.suppress(OSError)


def _wait_for(descriptor: int, limit_s: float | None) -> bool:
    """Wait until the descriptor is readable. Return whether it was before the limit."""
    polled = select.poll()
    polled.register(descriptor, select.POLLIN)
    return bool(polled.poll(None if limit_s is None else 1000 * limit_s))


def _read_answer(descriptor: int) -> int | None:
    data = os.read(descriptor, _ANSWER.size)
    return _ANSWER.unpack(data)[0] if len(data) == _ANSWER.size else None


def _read_text(descriptor: int) -> str:
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


Start = Callable[[str, Mapping[str, str], int], Callable[[], object]]
"""Starts a program with an environment and an inherited descriptor; returns a function that waits for its end."""


class ForkServers(Struct):
    """The fork servers of a process. `entries` maps a program to the server program and the entry point in it."""

    library: Path
    entries: Mapping[str, tuple[str, int]]
    _servers: dict[str, ForkServer] = field(default_factory=dict)

    def find(
        self, program: str, environment: Mapping[str, str], start: Start
    ) -> tuple[ForkServer, int] | None:
        """Return the server for a program, started if necessary, and the entry point; None for other programs."""
        if program not in self.entries:
            return None
        name, entry = self.entries[program]
        with _no_errors():
            return self._server(name, environment, start), entry
        return None

    def _server(self, name: str, environment: Mapping[str, str], start: Start) -> ForkServer:
        if name not in self._servers:
            self._servers[name] = self._open(name, environment, start)
        return self._servers[name]

    def _open(self, program: str, environment: Mapping[str, str], start: Start) -> ForkServer:
        before = environment.get(_PRELOAD)
        preloaded = str(self.library) if not before else f"{self.library}:{before}"
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        with contextlib.closing(theirs):
            changed = {_PRELOAD: preloaded, _SOCKET_VARIABLE: str(theirs.fileno())}
            return ForkServer(ours, start(program, {**environment, **changed}, theirs.fileno()))

    def load_all(self, environment: Mapping[str, str], start: Start) -> None:
        """Start all servers, so that programs load on other processors while one of them works."""
        for name, _ in self.entries.values():
            with _no_errors():
                self._server(name, environment, start)

    def share(self, environment: Mapping[str, str], start: Start) -> SharedServers:
        """Start all servers. The result lets a process that inherits the descriptors use them."""
        self.load_all(environment, start)
        sockets = {name: server.descriptor for name, server in self._servers.items()}
        return SharedServers(str(self.library), dict(self.entries), sockets)

    def close(self) -> None:
        """Make all servers exit, and wait for them, so that their processor time is included in this process's.

        If it was interrupted, call it again.
        """
        for server in self._servers.values():
            server.close()
        while self._servers:
            name, server = next(iter(self._servers.items()))
            server.wait()
            del self._servers[name]


class SharedServers(Struct, frozen=True):
    """The fork servers of another process, and the descriptors of their sockets."""

    library: str
    entries: dict[str, tuple[str, int]]
    sockets: dict[str, int]

    def open(self) -> ForkServers:
        """Return the servers for use in this process. The other process ends them."""
        servers = {
            name: ForkServer(_socket.socket(fileno=descriptor), lambda: None)
            for name, descriptor in self.sockets.items()
        }
        return ForkServers(Path(self.library), self.entries, servers)


def can_be_preloaded(library: Path) -> bool:
    """Return whether LD_PRELOAD can contain this path."""
    return _NOT_IN_PRELOAD.isdisjoint(str(library))


def can_be_forked(program: Path) -> bool:
    """Return whether a program is an ELF file; for a script, the interpreter would become the server."""
    try:
        with program.open("rb") as stream:
            return stream.read(len(_ELF)) == _ELF
    except OSError:
        return False


def end(fork: Fork, grace_s: float) -> None:
    """Terminate a fork; kill it after the grace period."""
    for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(fork.pid, number)
        if fork.wait(limit_s) is not None:
            return
    # The server, which reports the exits of its forks, has exited itself.
    with contextlib.suppress(OSError):
        process = os.pidfd_open(fork.pid)
        try:
            _wait_for(process, None)
        finally:
            os.close(process)
