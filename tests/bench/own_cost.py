"""Measure the driver's overhead: the time in which none of its tools runs, and its processor time.

Single times on a loaded machine are unreliable; the figures are the least and the median of several runs that
take turns. The driver is installed from a wheel in a separate environment. The unavoidable part, the startup
of Python with the modules that any such program imports, is printed too.

usage: python tests/bench/own_cost.py [--runs N] [--llvm PREFIX] [--cuda PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.installed import install

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "saxpy.mlir"
FOUR = "--offload-arch=sm_80,sm_86,sm_89,sm_90"
ONE = "--offload-arch=sm_90"
PYTHON = {
    "python -c pass": "pass",
    "python, its library": "import dataclasses, pathlib, re, shutil, subprocess, tempfile, threading",
}
# Run the driver unmodified; at its end, write when each program ran and the processor time of the driver.
OBSERVED = """\
import json, os, resource, sys, time
from mlir_offload.__main__ import main
from mlir_offload.toolchain.process import ProcessRunner
ran, run = [], ProcessRunner.run
def now():
    return time.monotonic(), time.process_time()
def noting(self, *given, **named):
    start = now()
    try:
        return run(self, *given, **named)
    finally:
        ran.append((start, now()))
ProcessRunner.run = noting
leave = os._exit
def noting_end(status):
    used = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(os.environ["OBSERVED"], "w") as file:
        own = used.ru_utime + used.ru_stime
        json.dump([ran, own, others.ru_utime + others.ru_stime], file)
    leave(status)
os._exit = noting_end
main()
"""


@dataclass(frozen=True)
class Cost:
    """One invocation, in seconds: wall time, wall time without any tool, processor times, number of programs.

    `busy` is the processor time of the driver while none of its tools ran.
    """

    wall: float
    alone: float
    busy: float
    own: float
    children: float
    programs: int


# A time, and the processor time that the driver had used by then.
Moment = tuple[float, float]


def covered(intervals: Iterable[tuple[Moment, Moment]]) -> Moment:
    """Return the total length of the union of the intervals, and the driver's processor time in them."""
    wall = busy = 0.0
    reached = (0.0, 0.0)
    for start, end in sorted(intervals):
        begin = max(start, reached)
        if end > begin:
            wall, busy = wall + end[0] - begin[0], busy + end[1] - begin[1]
            reached = end
    return wall, busy


def observe(work: Path, words: Iterable[str]) -> Cost:
    notes = work / "notes.json"
    environment = {**os.environ, "OBSERVED": str(notes)}
    begin = time.monotonic()
    subprocess.run(
        [work / "mlir-offload", *words], cwd=work, env=environment, check=True, capture_output=True
    )
    wall = time.monotonic() - begin
    ran, own, children = json.loads(notes.read_text())
    beside, busy_beside = covered((tuple(start), tuple(end)) for start, end in ran)
    return Cost(wall, wall - beside, own - busy_beside, own, children, len(ran))


def observe_python(python: Path, code: str) -> Cost:
    """Return the cost of running a line of code in Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    subprocess.run([python, "-c", code], check=True)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, wall, own, own, 0.0, 0)


def calls(llvm: Path, cuda: Path) -> dict[str, tuple[str, ...]]:
    tools = (f"--llvm={llvm}", f"--cuda-path={cuda}")
    compile_ = (*tools, "-c", str(PROGRAM), "-o", "k.o")
    return {
        "-c, one architecture": (*compile_, ONE),
        "-c, four architectures": (*compile_, FOUR),
        "-c, four, --cache, all there": (*compile_, FOUR, "--cache"),
        "compile and link, one": (*tools, str(PROGRAM), "-o", "k", ONE),
        "--toolchain-id": (*tools, "--toolchain-id"),
    }


def row(costs: Sequence[Cost]) -> Iterator[str]:
    for part in ("alone", "busy", "own", "children", "programs", "wall"):
        values = [getattr(cost, part) for cost in costs]
        least = min(values)
        if isinstance(least, int):
            yield str(least)
        else:
            yield f"{1000 * least:.0f} ({1000 * statistics.median(values):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="counted runs of each (default: 9)")
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda-13.0"))
    options = parser.parse_args()
    # Users have compiled Python modules, so allow writing them; otherwise their compilation would be
    # measured.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.pop("PYTHONPATH", None)
    work = Path(tempfile.mkdtemp(prefix="mlir-offload-bench-"))
    os.environ["CCACHE_DIR"] = str(work / "cache")
    table = Table(title=f"the driver's own cost in ms: least (median) of {options.runs}")
    for heading in (
        "call",
        "alone",
        "of that busy",
        "busy in all",
        "its programs",
        "number",
        "wall",
    ):
        table.add_column(heading, justify="left" if heading == "call" else "right")
    try:
        python = install(work)
        program = work / "mlir-offload"
        program.write_text(f"#!{python}\n{OBSERVED}")
        program.chmod(0o755)
        observed = {
            name: partial(observe_python, python, code) for name, code in PYTHON.items()
        } | {
            name: partial(observe, work, words)
            for name, words in calls(options.llvm, options.cuda).items()
        }
        rounds = [
            {name: look() for name, look in observed.items()} for _ in range(options.runs + 1)
        ]
        for name in observed:
            table.add_row(name, *row([costs[name] for costs in rounds[1:]]))
    finally:
        shutil.rmtree(work)
    Console().print(table)
    Console().print(f"$ {shlex.join(sys.argv)}", highlight=False)


if __name__ == "__main__":
    main()
