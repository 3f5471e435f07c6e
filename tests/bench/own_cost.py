"""Tell what the driver itself costs: the time in which none of its tools runs, and its processor time.

Times of a loaded machine say little: what is given is the least of several runs, and the median.

usage: python tests/bench/own_cost.py [--runs N] [--llvm PREFIX] [--cuda PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "saxpy.mlir"
FOUR = "--offload-arch=sm_80,sm_86,sm_89,sm_90"
ONE = "--offload-arch=sm_90"
# The driver as it is, that tells at its end when each program ran and what it used itself.
OBSERVED = """\
import json, os, resource, sys, time
from mlir_offload.driver.cli import main
from mlir_offload.toolchain.process import ProcessRunner
ran, run = [], ProcessRunner.run
def noting(self, *given, **named):
    start = time.monotonic()
    try:
        return run(self, *given, **named)
    finally:
        ran.append((start, time.monotonic()))
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
    """One call, in seconds: all of it, what none of its programs ran in, processor time, programs."""

    wall: float
    alone: float
    own: float
    children: float
    programs: int


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the time that lies in any of the intervals."""
    total, reached = 0.0, 0.0
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def observe(work: Path, words: Iterable[str]) -> Cost:
    notes = work / "notes.json"
    environment = {**os.environ, "OBSERVED": str(notes)}
    begin = time.monotonic()
    subprocess.run(
        [work / "mlir-offload", *words], cwd=work, env=environment, check=True, capture_output=True
    )
    wall = time.monotonic() - begin
    ran, own, children = json.loads(notes.read_text())
    return Cost(wall, wall - covered(ran), own, children, len(ran))


def install(work: Path) -> None:
    """Lay the packages as a wheel does: what finds an editable install takes 15 ms of each start."""
    for package in (ROOT / ".importroot" / "mlir_offload").iterdir():
        copy = shutil.copytree if package.is_dir() else shutil.copy
        copy(package, work / "site" / "mlir_offload" / package.name)
    packages = sysconfig.get_path("purelib")
    os.environ["PYTHONPATH"] = f"{work / 'site'}:{packages}"
    # Without -S Python reads the files there that begin an editable install.
    (work / "mlir-offload").write_text(f"#!{sys.executable} -S\n{OBSERVED}")
    (work / "mlir-offload").chmod(0o755)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="counted runs of each (default: 9)")
    parser.add_argument("--llvm", type=Path, default=Path("/usr/lib/llvm-22"))
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda-13.0"))
    options = parser.parse_args()
    # Users have compiled modules; a shell that forbids writing them would be measured instead.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    work = Path(tempfile.mkdtemp(prefix="mlir-offload-bench-"))
    install(work)
    os.environ["CCACHE_DIR"] = str(work / "cache")
    table = Table(title=f"the driver's own cost in ms: least (median) of {options.runs}")
    for heading in ("call", "alone", "its processor time", "its programs'", "programs", "wall"):
        table.add_column(heading, justify="left" if heading == "call" else "right")
    try:
        for name, words in calls(options.llvm, options.cuda).items():
            costs = [observe(work, words) for _ in range(options.runs + 1)][1:]
            parts = ("alone", "own", "children", "programs", "wall")
            values = [[getattr(cost, part) for cost in costs] for part in parts]
            row = [
                str(least) if isinstance(least := min(part), int)
                else f"{1000 * least:.0f} ({1000 * statistics.median(part):.0f})"
                for part in values
            ]  # fmt: skip
            table.add_row(name, *row)
    finally:
        shutil.rmtree(work)
    Console().print(table)
    Console().print(f"$ {shlex.join(sys.argv)}", highlight=False)


if __name__ == "__main__":
    main()
