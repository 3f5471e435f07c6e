"""Run independent work at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def in_parallel(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results in order; raise the error of the first task that failed, after all ended.

    Each call has threads of its own, so that tasks may call it again without waiting for each
    other; how many programs run at once is the executor's matter.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    with ThreadPoolExecutor(max_workers=len(tasks) or 1) as pool:
        futures = [pool.submit(task) for task in tasks]
        return [future.result() for future in futures]


def beside(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Run `second` beside `first`; return both results, or raise the first error in that order."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(second)
        result = first()
        return result, future.result()
