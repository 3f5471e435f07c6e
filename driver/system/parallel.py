"""Run independent work concurrently, limited by job slots, and handle signals.

After Ctrl-C, SIGTERM or SIGHUP no process or file is left. Job slots are shared with a GNU make or Ninja
that announces a jobserver.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mlir_offload.toolchain.errors import MlirOffloadError, joined
from mlir_offload.toolchain.process import ProcessRunner

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from mlir_offload.driver.system.jobserver import Jobserver

T = TypeVar("T")
U = TypeVar("U")

_open: list[object] = []
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Done(Generic[T]):
    """Work that has ended, with its result or its error."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._made: list[T] = []
        self.error: BaseException | None = None
        self._do(work)

    def _do(self, work: Callable[[], T]) -> None:
        try:
            self._made.append(work())
        except BaseException as error:  # noqa: BLE001 (raised by `result`)
            self.error = error

    def wait(self) -> None:
        """Wait until the work has ended, with a result or an error."""

    def result(self) -> T:
        """Wait for the result, or raise the error of the work."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self._made[0]


class Task(Done[T]):
    """Work in a separate thread.

    It replaces the futures of concurrent.futures, whose import takes 6 ms of every invocation.
    """

    def _do(self, work: Callable[[], T]) -> None:
        self._thread = threading.Thread(target=super()._do, args=(work,))
        self._thread.start()

    def wait(self) -> None:
        """Wait until the work has ended, with a result or an error."""
        self._thread.join()


class Threads:
    """The work that one `pool` has started."""

    def __init__(self) -> None:
        self.tasks: list[Task[object]] = []

    def submit(self, work: Callable[[], T]) -> Task[T]:
        """Start work in a new thread."""
        task = Task(work)
        self.tasks.append(task)  # type: ignore[arg-type]  # results are not read from this list
        return task


def is_shared() -> bool:
    """Return whether other threads are running, which may wait for a slot or lock of this thread."""
    return bool(_open)


@contextlib.contextmanager
def pool() -> Iterator[Threads]:
    """Yield a pool of threads for work that shares slots and locks with this thread.

    All threads have ended when the block is left.
    """
    threads = Threads()
    _open.append(threads)
    try:
        yield threads
    finally:
        for task in threads.tasks:
            task.wait()
        _open.remove(threads)


@contextlib.contextmanager
def limited_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Yield an executor with at most `workers` threads; otherwise like `pool`."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=workers) as threads:
        _open.append(threads)
        try:
            yield threads
        finally:
            threads.shutdown()
            _open.remove(threads)


def parallel_map(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results in order. After all tasks ended, raises the first error, joined with the others.

    Each task has a separate thread, so that tasks may call this function without a deadlock. The executor
    limits the number of concurrent programs.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    with pool() as threads:
        started = [threads.submit(task) for task in tasks]
    _raise_all(started)
    return [task.result() for task in started]


def run_concurrently(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Run two functions concurrently; return both results, or raise the errors like `parallel_map`."""
    with pool() as threads:
        task = threads.submit(second)
        done = Done(first)
    _raise_all((done, task))
    return done.result(), task.result()


def _raise_all(tasks: Sequence[Done[Any]]) -> None:
    errors = [task.error for task in tasks if task.error is not None]
    ours = [error for error in errors if isinstance(error, MlirOffloadError)]
    if ours and len(ours) == len(errors):
        raise joined(ours)
    if errors:
        raise next(error for error in errors if not isinstance(error, MlirOffloadError))


@contextlib.contextmanager
def interruptible(runner: ProcessRunner) -> Iterator[None]:
    """End child processes at a signal; the workspace is removed as the stack unwinds.

    Raises KeyboardInterrupt in place of any exception after a signal, which is a consequence of it.
    """

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (signature of a handler)
        heard.append(number)
        # An exception between any two instructions could leave a slot or a lock taken for which another
        # thread waits. With several threads, only the tools are ended, and their errors unwind the threads.
        if is_shared():
            runner.stop()
        else:
            runner.interrupt()

    # Not an Event: the handler of a second signal would wait for its lock inside of the first handler.
    heard: list[int] = []
    # Signals that the parent ignores, as nohup and background jobs of a shell do, stay ignored.
    known = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in known}
    try:
        with _watched(runner):
            yield
    except Exception as error:
        # For example click's Abort, or the failure of a tool that was ended.
        if heard:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _watched(runner: ProcessRunner) -> Iterator[None]:
    """End child processes from a separate thread as soon as a signal arrives.

    Python runs a handler only between two instructions of the main thread. If a signal arrives just before
    that thread starts to wait for a child or a lock, the handler would run after the wait.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    previous = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def watch() -> None:
        if os.read(read_end, 1):
            runner.stop()

    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(write_end)
        watcher.join()
        os.close(read_end)


# No server writes this byte as a token; it marks an empty cell.
_NO_TOKEN = 0
_OWN = b"+"


class JobSlots:
    """Slots for programs: `jobs` local ones, or one and those of a jobserver, up to `jobs` in total."""

    def __init__(self, jobs: int, server: Jobserver | None = None) -> None:
        """Put the implicit slot into a pipe, so that poll() can wait for it and for the server."""
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
        """Return the descriptors that a child needs to use the jobserver."""
        return self._server.inherited if self._server else ()

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot during the block; wait until one is free."""
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
        """Return the value of an option that limits the concurrent programs of a child.

        If it is a number, the slots beyond the child's own are taken from the jobserver, without waiting, until
        the end of the build.
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
        """Return all slots that are still held, for example after an interrupt."""
        if self._server is None or self._own is None:
            return
        for cell in list(self._cells):
            self._write_back(self._server, cell)
        for end in {*self._own, self._server.read_end}:
            os.close(end)
        self._server = self._own = None

    def _wait(self, server: Jobserver, own: tuple[int, int]) -> bytearray | None:
        """Return the cell of a token, or None for the implicit slot."""
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
        """Read one token into a cell that is registered before, so that an interrupt cannot lose it."""
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
        # Not list.remove(), which compares by value and could remove another cell.
        with self._lock:
            self._cells = [other for other in self._cells if other is not cell]


def _read(end: int, cell: bytearray) -> bool:
    """Read one byte if there is one; another client may have taken it."""
    try:
        return os.readv(end, [cell]) == 1
    except BlockingIOError:
        return False
