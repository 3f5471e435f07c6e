"""What the groups of tests cost, beside what they may: printed at the end of a run, nothing more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

# Seconds of one process on two quiet cores, of which two run the suite in half of the sum. A third uses the time in
# which tests wait, and makes each of them slower: what is printed then is up to 1.5 times as much.
BUDGET_S: Mapping[str, int] = {
    "tests": 20,
    "tests/fuzz": 5,
    "tests/integration": 725,
    "tests/unit": 170,
}
_SHOWN_FILES = 8


def budget_lines(durations: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Yield the groups with their time and budget, and the most expensive files.

    `durations` are node ids, each with the time of one phase.
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
