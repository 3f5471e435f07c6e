"""Job slots: how many programs may run at once, shared with a GNU make or Ninja that announces it.

The protocol is that of the manual of GNU make, "POSIX Jobserver Interaction": every client has one
slot of its own; each further one is a byte read from the server and written back.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import stat
import threading
from collections.abc import Iterator, Mapping

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern

_ANNOUNCED = pattern(r"--jobserver-(?:auth|fds)=(.+)")
_PIPE = pattern(r"(\d+),(\d+)")
_FIFO = "fifo:"
# No server writes this as a token: it marks a cell that holds none.
_NO_TOKEN = 0
_OWN = b"+"


class Jobserver(Struct, frozen=True):
    """Open ends of a jobserver, without blocking; `inherited` are what a child needs to reach it."""

    read_end: int
    write_end: int
    inherited: tuple[int, ...] = ()


class Announcement(Struct, frozen=True):
    """What the environment says: whether there is a jobserver, and the server if it is reachable."""

    is_announced: bool
    server: Jobserver | None = None


def find_jobserver(environment: Mapping[str, str]) -> Announcement:
    """Return the jobserver of MAKEFLAGS. Must be called before this process opens any file.

    A recipe that make does not know to start another make, for want of `+`, is given descriptors
    that are closed in it: what this process opened by itself would be taken for the server.
    """
    words = _make_words(environment.get("MAKEFLAGS", ""))
    announced = [match[1] for word in words if (match := _ANNOUNCED.fullmatch(word))]
    if not announced:
        return Announcement(is_announced=False)
    is_dry_run = "n" in words[0] and not words[0].startswith("-")
    return Announcement(True, None if is_dry_run else _open_server(announced[-1]))  # noqa: FBT003


def _make_words(flags: str) -> list[str]:
    """Return the words of MAKEFLAGS; what follows `--` are variables."""
    try:
        words = shlex.split(flags)
    except ValueError:
        words = flags.split()
    return words[: words.index("--")] if "--" in words else words


def _open_server(where: str) -> Jobserver | None:
    pipe = _PIPE.fullmatch(where)
    with contextlib.suppress(OSError):
        if where.startswith(_FIFO):
            return _open_fifo(where.removeprefix(_FIFO))
        if pipe and _is_pipe(int(pipe[1]), int(pipe[2])):
            return _reopen(int(pipe[1]), int(pipe[2]))
    return None


def _is_pipe(read_end: int, write_end: int) -> bool:
    """Say whether the descriptors are the two ends of one pipe."""
    import fcntl

    ends = [os.fstat(end) for end in (read_end, write_end)]
    access = [fcntl.fcntl(end, fcntl.F_GETFL) & os.O_ACCMODE for end in (read_end, write_end)]
    return (
        all(stat.S_ISFIFO(end.st_mode) for end in ends)
        and ends[0].st_ino == ends[1].st_ino
        and access[0] in {os.O_RDONLY, os.O_RDWR}
        and access[1] in {os.O_WRONLY, os.O_RDWR}
    )


def _reopen(read_end: int, write_end: int) -> Jobserver:
    """Open the ends anew: O_NONBLOCK on the inherited ones would change them for every client."""
    read = os.open(f"/proc/self/fd/{read_end}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return Jobserver(read, write_end, (read_end, write_end))


def _open_fifo(path: str) -> Jobserver | None:
    # Open for both, so that neither waits for the other.
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(end).st_mode):
        os.close(end)
        return None
    return Jobserver(end, end)


class JobSlots:
    """Slots for programs: `jobs` of our own; or one and those of a jobserver, up to `jobs` in all."""

    def __init__(self, jobs: int, server: Jobserver | None = None) -> None:
        """Open the pipe that our own slot lies in, so that who waits is woken by either kind."""
        self.jobs = jobs
        self._server = server
        self._limit = threading.Semaphore(jobs)
        self._lock = threading.Lock()
        self._spare_lock = threading.Lock()
        self._spare = 0
        self._cells: list[bytearray] = []
        self._own = os.pipe() if server else None
        if self._own:
            os.set_blocking(self._own[0], False)
            os.write(self._own[1], _OWN)

    @property
    def is_shared(self) -> bool:
        """Return whether the slots are those of a jobserver."""
        return self._server is not None

    @property
    def inherited(self) -> tuple[int, ...]:
        """Return the descriptors by which a child reaches the jobserver."""
        return self._server.inherited if self._server else ()

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot; wait for one as long as there is none."""
        with self._limit:
            if self._server is None or self._own is None:
                yield
                return
            cell = self._wait(self._server, self._own)
            try:
                yield
            finally:
                if cell is None:
                    os.write(self._own[1], _OWN)
                else:
                    self._write_back(self._server, cell)

    def for_child(self, *, takes_jobserver: bool) -> str:
        """Return the value of an option that tells a child how many programs it may run at once.

        Where it is a number, what it counts beyond the child's own slot is held till the end of the
        build: slots that are there without waiting.
        """
        if self._server is None:
            return str(self.jobs)
        if takes_jobserver:
            return "jobserver"
        with self._spare_lock:
            while self._spare < self.jobs - 1 and self._read_token(self._server) is not None:
                self._spare += 1
            return str(1 + self._spare)

    def close(self) -> None:
        """Give back whatever is still held: an interrupted build may hold some."""
        if self._server is None or self._own is None:
            return
        for cell in list(self._cells):
            self._write_back(self._server, cell)
        for end in {*self._own, self._server.read_end}:
            os.close(end)
        self._server = self._own = None

    def _wait(self, server: Jobserver, own: tuple[int, int]) -> bytearray | None:
        """Return the cell of a token, or None for our own slot."""
        ends = select.poll()
        ends.register(own[0], select.POLLIN)
        ends.register(server.read_end, select.POLLIN)
        while True:
            ends.poll()
            if _read(own[0], bytearray(1)):
                return None
            cell = self._read_token(server)
            if cell is not None:
                return cell

    def _read_token(self, server: Jobserver) -> bytearray | None:
        """Read one token into a cell that is known before: no interruption can lose it."""
        cell = bytearray((_NO_TOKEN,))
        with self._lock:
            self._cells.append(cell)
        if _read(server.read_end, cell):
            return cell
        self._forget(cell)
        return None

    def _write_back(self, server: Jobserver, cell: bytearray) -> None:
        self._forget(cell)
        if cell[0] != _NO_TOKEN:
            os.write(server.write_end, cell)

    def _forget(self, cell: bytearray) -> None:
        # Cells are equal by value: list.remove() would take another's.
        with self._lock:
            self._cells = [other for other in self._cells if other is not cell]


def _read(end: int, cell: bytearray) -> bool:
    """Read one byte if there is one: another client may have been faster."""
    try:
        return os.readv(end, [cell]) == 1
    except BlockingIOError:
        return False
