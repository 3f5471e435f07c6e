"""Whether a program is the one of last time, told without reading it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from mlir_offload.driver.system.tool_watch import LIBRARY_PLACES, file_stamp

_ELF = b"\x7fELF"
# What has just been written may be written again within the same tick of the clock.
_SETTLED_NS = 2_000_000_000


def program_stamp(program: Path) -> str:
    """Return what differs when a program or a library that it may load is another; empty if unknown.

    An upgrade replaces libraries by files of the same names: the directories change then. What a
    script runs is unknown, and so is a program that has just been written.
    """
    try:
        with program.open("rb") as stream:
            if stream.read(len(_ELF)) != _ELF:
                return ""
        own = program.stat()
    except OSError:
        return ""
    path = os.environ.get("LD_LIBRARY_PATH", "")
    found = [status for place in _places(program, path) if (status := _status(place)) is not None]
    newest = max(status.st_ctime_ns for status in (own, *found))
    if abs(time.time_ns() - newest) < _SETTLED_NS:
        return ""
    return " ".join((path, *(file_stamp(status) for status in (own, *found))))


def _places(program: Path, library_path: str) -> Iterator[str]:
    """Yield the directories of a program, and those of libraries."""
    for folder in dict.fromkeys((str(program.parent), os.path.dirname(os.path.realpath(program)))):  # noqa: PTH120
        yield folder
        yield f"{folder}/../lib"
    yield from LIBRARY_PLACES
    yield from (place for place in library_path.split(":") if place)


def _status(place: str) -> os.stat_result | None:
    try:
        return os.stat(place)  # noqa: PTH116 (a dozen for each program)
    except OSError:
        return None
