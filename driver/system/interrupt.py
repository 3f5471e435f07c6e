"""What Ctrl-C, SIGTERM and SIGHUP do: end the children, unwind, leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from mlir_offload.driver.system import parallel
from mlir_offload.toolchain.process import ProcessRunner

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible(runner: ProcessRunner) -> Iterator[None]:
    """End the children at a signal; the workspace is removed as the stack unwinds.

    Raises KeyboardInterrupt for whatever is raised once a signal came: it is a consequence.
    """

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (signature of a handler)
        heard.append(number)
        # Raised between any two instructions, it could leave a slot or a lock taken for which
        # another thread waits. There, the tools that end now make every thread unwind.
        if parallel.is_shared():
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
