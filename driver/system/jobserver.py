"""Find the jobserver of a GNU make or Ninja that starts this process.

The protocol is in the manual of GNU make, "POSIX Jobserver Interaction": every client has one implicit slot; each
further one is a byte that is read from the server and written back, which `JobSlots` does.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Mapping

from msgspec import Struct

from mlir_offload.toolchain.pattern import pattern

_ANNOUNCED = pattern(r"--jobserver-(?:auth|fds)=(.+)")
_PIPE = pattern(r"(\d+),(\d+)")
_FIFO = "fifo:"


class Jobserver(Struct, frozen=True):
    """Non-blocking ends of a jobserver; a child needs the `inherited` descriptors to use it."""

    read_end: int
    write_end: int
    inherited: tuple[int, ...] = ()


class Announcement(Struct, frozen=True):
    """Whether the environment announces a jobserver, and the server if it is reachable."""

    is_announced: bool
    server: Jobserver | None = None


def find_jobserver(environment: Mapping[str, str]) -> Announcement:
    """Return the jobserver of MAKEFLAGS. Must be called before this process opens any file.

    If a recipe has no `+` and does not run another make, make closes the announced descriptors. A file that
    this process opens could then have the same number and be mistaken for the server.
    """
    words = _make_words(environment.get("MAKEFLAGS", ""))
    announced = [match[1] for word in words if (match := _ANNOUNCED.fullmatch(word))]
    if not announced:
        return Announcement(is_announced=False)
    is_dry_run = "n" in words[0] and not words[0].startswith("-")
    return Announcement(True, None if is_dry_run else _open_server(announced[-1]))  # noqa: FBT003


def _make_words(flags: str) -> list[str]:
    """Return the words of MAKEFLAGS before `--`, after which variables follow."""
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
    """Return whether the descriptors are the two ends of one pipe."""
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
    """Open the ends again, because O_NONBLOCK on the inherited ones would affect every client."""
    read = os.open(f"/proc/self/fd/{read_end}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return Jobserver(read, write_end, (read_end, write_end))


def _open_fifo(path: str) -> Jobserver | None:
    # Open for reading and writing, so that open() does not wait for the other end.
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(end).st_mode):
        os.close(end)
        return None
    return Jobserver(end, end)
