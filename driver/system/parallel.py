"""Run independent work at the same time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
U = TypeVar("U")

_open: list[object] = []


class Task(Generic[T]):
    """Work in a thread of its own.

    As a future of concurrent.futures, which every start of the compiler would load for 6 ms.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made.append(self._work())
        except BaseException as error:  # noqa: BLE001 (told to who asks for the result)
            self._error = error

    def wait(self) -> None:
        """Return when the work has ended, well or not."""
        self._thread.join()

    def result(self) -> T:
        """Wait for what the work returns, or raise what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._made[0]


class Threads:
    """The work that one `pool` has started."""

    def __init__(self) -> None:
        self.tasks: list[Task[object]] = []

    def submit(self, work: Callable[[], T]) -> Task[T]:
        """Start work; it goes on beside this thread."""
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


def in_parallel(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results in order; raise the error of the first task that failed, after all ended.

    Each task has a thread of its own, so that tasks may call this again without waiting for each
    other; how many programs run at once is the executor's matter.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    with pool() as threads:
        started = [threads.submit(task) for task in tasks]
        return [task.result() for task in started]


def beside(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Run `second` beside `first`; return both results, or raise the first error in that order."""
    with pool() as threads:
        task = threads.submit(second)
        result = first()
        return result, task.result()
