"""Load a program once, and fork it for each command.

Loading mlir-opt or clang, with the relocations and constructors of LLVM's libraries, takes 20 to 35 ms of processor
time; a fork of the loaded program takes 3 ms. A library that LD_PRELOAD loads into the program
(`data/fork_server.c`) waits for requests before main(). If that does not work, for example with a script or a
statically linked program, the caller starts the program normally.
"""

from __future__ import annotations

# `_socket` instead of `socket`, whose import takes 7 ms, because it creates enumerations of its constants.
import _socket
import contextlib
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct, field

SOURCE = Path(__file__).parent / "data" / "fork_server.c"
PROGRAM, MLIR_TRANSLATE = 0, 1
"""The entry point of a fork: main() of its program, or mlir-translate, whose code libMLIR contains."""

_SOCKET_VARIABLE = "MLIR_OFFLOAD_FORK_SERVER"
_PRELOAD = "LD_PRELOAD"
_HEADER = struct.Struct("=III")
_DESCRIPTORS = struct.Struct("=iiii")
_ANSWER = struct.Struct("=i")
_ELF = b"\x7fELF\x02\x01"
# Elf64_Ehdr: offset, size and number of the program headers. Elf64_Phdr: type, offset, size in the file.
_PROGRAM_HEADERS = struct.Struct("<32xQ14xHH")
_PROGRAM_HEADER = struct.Struct("<I4xQ16xQ")
_PT_INTERP = 3
_GLIBC_LOADER = b"ld-linux"
_MOST_AT_ONCE = 1 << 16
# Characters that separate names in LD_PRELOAD or are expanded there (ld.so(8)).
_NOT_IN_PRELOAD = frozenset(": \t\n$")


class Fork(Struct, eq=False):
    """A fork of a loaded program, in its own process group."""

    pid: int
    _answers: int
    _outputs: tuple[int, int]
    _printed: tuple[bytearray, bytearray] = field(
        default_factory=lambda: (bytearray(), bytearray())
    )

    def wait(self, limit_s: float | None = None) -> int | None:
        """Wait for the exit. Return the exit status (negative: signal), None if it is unknown or after the limit.

        Reads the outputs meanwhile, because the program blocks if a pipe is full.
        """
        polled = self._poll((self._answers, *self._outputs))
        end = None if limit_s is None else time.monotonic() + limit_s
        while True:
            left_s = None if end is None else max(0.0, end - time.monotonic())
            ready = polled.poll(None if left_s is None else 1000 * left_s)
            if not ready:
                return None
            if any(descriptor == self._answers for descriptor, _ in ready):
                status = _read_answer(self._answers)
                return None if status is None else os.waitstatus_to_exitcode(status)
            for descriptor, _ in ready:
                if not self._read(descriptor):
                    polled.unregister(descriptor)

    def printed(self) -> tuple[str, str]:
        """Return standard output and standard error of the fork and of the programs that it started."""
        polled, count = self._poll(self._outputs), len(self._outputs)
        while count:
            for descriptor, _ in polled.poll():
                if not self._read(descriptor):
                    polled.unregister(descriptor)
                    count -= 1
        output, errors = map(_as_text, self._printed)
        return output, errors

    @staticmethod
    def _poll(descriptors: Iterable[int]) -> select.poll:
        polled = select.poll()
        for descriptor in descriptors:
            polled.register(descriptor, select.POLLIN)
        return polled

    def _read(self, output: int) -> bool:
        """Read the available output. Return whether there may be more."""
        data = os.read(output, _MOST_AT_ONCE)
        self._printed[self._outputs.index(output)].extend(data)
        return bool(data)

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
        text = os.fsencode("".join(f"{word}\0" for word in words))
        message = _HEADER.pack(entry, len(argv), len(environment)) + text
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours, _no_errors():
            directory = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            theirs.callback(os.close, directory)
            pipes = []
            # Pipes, because a program that opens /dev/stderr would truncate a file in memory.
            for _ in range(3):
                read_end, write_end = os.pipe()
                ours.callback(os.close, read_end)
                theirs.callback(os.close, write_end)
                pipes.append((read_end, write_end))
            (output, errors, answers), written = zip(*pipes, strict=True)
            descriptors = _DESCRIPTORS.pack(directory, *written)
            rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)
            self._requests.sendmsg([message], [rights])
            theirs.close()
            pid = _read_answer(answers)
            if pid:
                ours.pop_all()
                return Fork(pid, answers, (output, errors))
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


def _read_answer(descriptor: int) -> int | None:
    data = os.read(descriptor, _ANSWER.size)
    return _ANSWER.unpack(data)[0] if len(data) == _ANSWER.size else None


def _as_text(data: bytearray) -> str:
    return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


Start = Callable[[str, Mapping[str, str], int], Callable[[], object]]
"""Starts a program with an environment and an inherited descriptor; returns a function that waits for its exit."""


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
            status = os.stat(program)  # noqa: PTH116
            served = f"{theirs.fileno()} {status.st_dev} {status.st_ino}"
            changed = {_PRELOAD: preloaded, _SOCKET_VARIABLE: served}
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
        """Return the servers for use in this process. The other process terminates them."""
        servers = {
            name: ForkServer(_socket.socket(fileno=descriptor), lambda: None)
            for name, descriptor in self.sockets.items()
        }
        return ForkServers(Path(self.library), self.entries, servers)


def can_be_preloaded(library: Path) -> bool:
    """Return whether LD_PRELOAD can contain this path."""
    return _NOT_IN_PRELOAD.isdisjoint(str(library))


def can_be_forked(program: Path) -> bool:
    """Return whether a program is dynamically linked with glibc; a script or a static program is not."""
    try:
        with program.open("rb") as stream:
            return _GLIBC_LOADER in _interpreter(stream)
    except (OSError, struct.error):
        return False


def _interpreter(stream: IO[bytes]) -> bytes:
    """Return the path of the dynamic loader, empty if the program is not an ELF file or has none."""
    if stream.read(len(_ELF)) != _ELF:
        return b""
    stream.seek(0)
    place, size, count = _PROGRAM_HEADERS.unpack(stream.read(_PROGRAM_HEADERS.size))
    for number in range(count):
        stream.seek(place + number * size)
        kind, offset, length = _PROGRAM_HEADER.unpack(stream.read(_PROGRAM_HEADER.size))
        if kind == _PT_INTERP:
            stream.seek(offset)
            return stream.read(length)
    return b""


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
            select.select((process,), (), ())
        finally:
            os.close(process)
