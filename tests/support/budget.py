"""Print the processor time of groups of tests and its budget at the end of a run. A run never fails by it.

Processor time depends little on other load of the machine, unlike wall time.
"""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

# Seconds of one core: two cores as fast as those of servers in 2025 run the sum in 480 s.
BUDGET_S: Mapping[str, int] = {
    "tests": 10,
    "tests/fuzz": 5,
    "tests/integration": 830,
    "tests/unit": 115,
}
_SHOWN_FILES = 8
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_s() -> float:
    """Return the processor time of this process and its children in seconds, including running ones."""
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ended = sum(usage.ru_utime + usage.ru_stime for usage in own)
    thread = Path(f"/proc/self/task/{os.getpid()}/children")
    return ended + sum(map(_running_s, thread.read_text().split()))


def _running_s(pid: str) -> float:
    """Return the seconds of a process and of its terminated children (proc(5): fields 14 to 17)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) / _TICKS


def budget_lines(durations: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Yield the groups with their time and budget, and the most expensive files.

    `durations` are node ids, each with the processor time of one phase.
    """
    groups: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    for node, seconds in durations:
        file = PurePosixPath(node.partition("::")[0])
        groups["/".join(file.parent.parts[:2])] += seconds
        files[str(file)] += seconds
    for name, seconds in sorted(groups.items()):
        yield f"{seconds:7.0f} s of {BUDGET_S.get(name, 0):4d} s  {name}"
    yield from (f"{seconds:7.0f} s  {name}" for name, seconds in _most(files))


def _most(files: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(files.items(), key=lambda item: -item[1])[:_SHOWN_FILES]
