"""Time the subcommand build: builds without work, many modules, two processors.

usage: python tests/bench/build.py [--part noop|plan|jobs|cost] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from support.project import write_project  # noqa: E402

from mlir_offload.driver.project.file import read_project  # noqa: E402 (found by the line above)
from mlir_offload.driver.project.graph import plan_project  # noqa: E402
from mlir_offload.driver.project.planned_step import ProjectStep  # noqa: E402
from mlir_offload.driver.project.run import ProjectRun, StepEnd  # noqa: E402
from mlir_offload.driver.project.state import open_state  # noqa: E402
from mlir_offload.driver.project.tools import ToolFinder  # noqa: E402
from mlir_offload.toolchain.process import ProcessRunner  # noqa: E402

COMMAND = [sys.executable, "-m", "mlir_offload.driver", "build"]
ARCHS = "sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_120"
MANIFEST = "archs: [{archs}]\nflags: --device-code=bitcode\nmodules: ['m*.mlir']\n"
THREE = "sm_80,sm_90,host"
RUNS = 3
# Linux counts the memory of the process that calls exec as memory of the program, so use a small one.
PEAK = """\
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.exit(status)
"""


@dataclass(frozen=True)
class Measured:
    """The wall time of a process in seconds, and its peak memory in MB."""

    seconds: float
    peak_mb: float


@dataclass(frozen=True)
class WritingEngine:
    """An engine that writes small files instead of running the tools, so that only the rest is measured."""

    root: Path
    lanes: int = 1
    splits_modules: bool = False

    def cancel(self) -> None:
        pass

    def run(self, step: ProjectStep, jobs: int = 1) -> StepEnd:
        del jobs
        for output in step.action.outputs:
            place = self.root / output
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(str(output) * 50)
        return StepEnd(0)


def timed(folder: Path, *options: str) -> Measured:
    begin = time.monotonic()
    words = [sys.executable, "-c", PEAK, *COMMAND, *options]
    done = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Measured(time.monotonic() - begin, int(done.stdout.split()[-1]) / 1024)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def measure_noop(folder: Path) -> None:
    write_project(folder, MANIFEST.format(archs="sm_90"), modules=8334)
    project = read_project(folder / "offload.yaml")
    graph = plan_project(project, ToolFinder(ProcessRunner()))
    with open_state(folder, folder / "build") as state:
        ProjectRun(graph, state, WritingEngine(folder), lambda _: None, lambda _: None).run()
    first = timed(folder)
    rest = [timed(folder) for _ in range(RUNS)]
    median = statistics.median(run.seconds for run in rest)
    say(
        f"nothing to do, 8,334 modules, {len(graph.steps)} steps: {median:.2f} s,"
        f" {rest[0].peak_mb:.0f} MB (the first time, by content: {first.seconds:.2f} s)"
    )


def measure_plan(folder: Path) -> None:
    write_project(folder, MANIFEST.format(archs="sm_80, sm_90"), modules=0)
    names = "".join(f"- m{number}.mlir\n" for number in range(10_000))
    for number in range(10_000):
        (folder / f"m{number}.mlir").touch()
    manifest = (folder / "offload.yaml").read_text()
    (folder / "offload.yaml").write_text(manifest.replace(" ['m*.mlir']\n", f"\n{names}"))
    runs = [timed(folder, "--emit=ninja") for _ in range(RUNS)]
    median = statistics.median(run.seconds for run in runs)
    say(
        f"10,000 modules in one manifest, planned and emitted: {median:.2f} s, {runs[0].peak_mb:.0f} MB"
    )


def measure_jobs(folder: Path) -> None:
    times: dict[str, list[float]] = {"-j1": [], "-j2": []}
    for number in range(RUNS):
        for option, found in times.items():
            place = write_project(folder / f"{option}.{number}", MANIFEST.format(archs=ARCHS), 2)
            found.append(timed(place, option, "--report=r.json").seconds)
            steps = json.loads((place / "r.json").read_text())["steps"]
            assert [step["kind"] for step in steps] == ["module", "module"], steps
    one, two = (statistics.median(found) for found in times.values())
    say(f"2 modules for 8 architectures: -j1 {one:.1f} s, -j2 {two:.1f} s, ratio {one / two:.2f}")


def cpu_s(folder: Path, words: Sequence[str | Path]) -> float:
    """Return the processor time of a program and its children, in seconds."""
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit((folder / "log").read_text())
    return usage.ru_utime + usage.ru_stime


def stock_cpu_s(folder: Path, module: str) -> float:
    """Return the processor time of the tools that an invocation of the compiler runs, in seconds."""
    call = [sys.executable, "-m", "mlir_offload.driver", "-c", module, f"-save-temps={module}.d"]
    call += [f"--offload-arch={THREE}", "-o", f"{module}.stock.o"]
    subprocess.run(call, cwd=folder, check=True, capture_output=True)
    shown = subprocess.run([*call, "-###"], cwd=folder, check=True, capture_output=True, text=True)
    lines = [line for line in shown.stderr.splitlines() if line.startswith("/")]
    tools = [shlex.split(line) for line in lines if "/runtime/" not in line]
    return sum(cpu_s(folder, [word for word in words if word != "&&"]) for words in tools)


def measure_cost(folder: Path) -> None:
    number = 12
    manifest = f"archs: [{THREE}]\nmodules: ['m*.mlir']\n"
    for name in ("build", "make", "warm"):
        write_project(folder / name, manifest, number)
    store = f"--store={folder / 'store'}"
    cold = cpu_s(folder / "build", [*COMMAND, "-j2", store])
    warm = cpu_s(folder / "warm", [*COMMAND, "-j2", store])
    command = f"{sys.executable} -m mlir_offload.driver"
    rule = f"%.o: %.mlir\n\t+{command} --offload-arch={THREE} -c $< -o $@\n"
    names = " ".join(f"m{index}.o" for index in range(number))
    (folder / "make" / "Makefile").write_text(f"all: {names}\n{rule}")
    make = cpu_s(folder / "make", ["make", "-j2"])
    stock = stock_cpu_s(folder / "make", "m0.mlir")
    say(
        f"{number} modules for three architectures, processor time of each: build -j2"
        f" {1000 * cold / number:.0f} ms, make -j2 {1000 * make / number:.0f} ms, the tools alone"
        f" {1000 * stock:.0f} ms (build {cold / number / stock:.2f} times that), from a store"
        f" {1000 * warm / number:.0f} ms ({warm / cold:.2f} of cold)"
    )


PARTS = {
    "cost": measure_cost,
    "noop": measure_noop,
    "plan": measure_plan,
    "jobs": measure_jobs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT / ".importroot")
    # Users have compiled Python modules, so allow writing them; otherwise their compilation would be
    # measured.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(dir=given.directory) as place:
        for name in given.part or PARTS:
            PARTS[name](Path(place) / name)


if __name__ == "__main__":
    main()
