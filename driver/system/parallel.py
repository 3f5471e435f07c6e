"""Run independent work at the same time, and end all of it: Ctrl-C, SIGTERM and SIGHUP leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mlir_offload.toolchain.errors import MlirOffloadError, joined
from mlir_offload.toolchain.process import ProcessRunner

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

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
        """Return when the work has ended, well or not."""

    def result(self) -> T:
        """Wait for what the work returns, or raise what it raised."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self._made[0]


class Task(Done[T]):
    """Work in a thread of its own.

    As a future of concurrent.futures, which every start of the compiler would load for 6 ms.
    """

    def _do(self, work: Callable[[], T]) -> None:
        self._thread = threading.Thread(target=super()._do, args=(work,))
        self._thread.start()

    def wait(self) -> None:
        """Return when the work has ended, well or not."""
        self._thread.join()


class Threads:
    """The work that one `pool` has started."""

    def __init__(self) -> None:
        self.tasks: list[Task[object]] = []

    def submit(self, work: Callable[[], T]) -> Task[T]:
        """Start work; it goes on next to this thread."""
        task = Task(work)
        self.tasks.append(task)  # type: ignore[arg-type]  # nobody asks this list for results
        return task


def is_shared() -> bool:
    """Say whether other threads may wait for something that this one holds, such as a slot."""
    return bool(_open)


@contextlib.contextmanager
def pool() -> Iterator[Threads]:
    """Give threads for work that holds slots and locks together with this thread.

    They have ended when the block is left.
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
    """Give so many threads, and no more, for work of any number of pieces; otherwise as `pool`."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=workers) as threads:
        _open.append(threads)
        try:
            yield threads
        finally:
            threads.shutdown()
            _open.remove(threads)


def parallel_map(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results in order; after all ended, raise the first error with those of other tasks.

    Each task has a thread of its own, so that tasks may call this again without waiting for each
    other; how many programs run at once is the executor's matter.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    with pool() as threads:
        started = [threads.submit(task) for task in tasks]
    _raise_all(started)
    return [task.result() for task in started]


def run_concurrently(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Run two functions at once; return both results, or raise the errors as `parallel_map`."""
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
    """End the children at a signal; the workspace is removed as the stack unwinds.

    Raises KeyboardInterrupt for whatever is raised once a signal came: it is a consequence.
    """

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (signature of a handler)
        heard.append(number)
        # Raised between any two instructions, it could leave a slot or a lock taken for which
        # another thread waits. There, the tools that end now make every thread unwind.
        if is_shared():
            runner.stop()
        else:
            runner.interrupt()

    # No Event, whose lock the handler of a second signal would wait for inside of the first one's.
    heard: list[int] = []
    # What the parent has ignored, as nohup and the background of a shell do, stays ignored.
    known = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in known}
    try:
        with _watched(runner):
            yield
    except Exception as error:
        # Such as click's Abort, or the failure of a tool that was ended.
        if heard:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _watched(runner: ProcessRunner) -> Iterator[None]:
    """End the children from a thread of its own as soon as a signal comes.

    Python calls a handler between two instructions of the main thread only: a signal that comes
    just before that thread begins to wait for a child, or a lock, would be heard after the wait.
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
