"""Run independent work at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

_pools: list[ThreadPoolExecutor] = []


def is_shared() -> bool:
    """Say whether other threads may wait for something that this one holds, such as a slot."""
    return bool(_pools)


@contextlib.contextmanager
def pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads for work that holds slots and locks together with this thread."""
    with ThreadPoolExecutor(max_workers=workers) as threads:
        _pools.append(threads)
        try:
            yield threads
        finally:
            threads.shutdown()
            _pools.remove(threads)


def in_parallel(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results in order; raise the error of the first task that failed, after all ended.

    Each call has threads of its own, so that tasks may call it again without waiting for each
    other; how many programs run at once is the executor's matter.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    with pool(len(tasks) or 1) as threads:
        futures = [threads.submit(task) for task in tasks]
        return [future.result() for future in futures]


def beside(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Run `second` beside `first`; return both results, or raise the first error in that order."""
    with pool(1) as threads:
        future = threads.submit(second)
        result = first()
        return result, future.result()
