"""Time the verb build: what costs nothing to do, many modules, two processors.

usage: python tests/bench/build.py [--part noop|plan|jobs] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
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
RUNS = 3


@dataclass(frozen=True)
class Measured:
    """How long a process took, and the most memory that it had."""

    seconds: float
    peak_mb: float


@dataclass(frozen=True)
class WritingEngine:
    """Leaves small files where the tools would leave theirs: what is timed comes after."""

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
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen([*COMMAND, *options], cwd=folder, stderr=log)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit((folder / "log").read_text())
    return Measured(time.monotonic() - begin, usage.ru_maxrss / 1024)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def measure_noop(folder: Path) -> None:
    write_project(folder, MANIFEST.format(archs="sm_90"), modules=1000)
    project = read_project(folder / "offload.yaml")
    graph = plan_project(project, ToolFinder(ProcessRunner()))
    with open_state(folder, folder / "build") as state:
        ProjectRun(graph, state, WritingEngine(folder), lambda _: None, lambda _: None).run()
    first = timed(folder)
    rest = [timed(folder) for _ in range(RUNS)]
    median = statistics.median(run.seconds for run in rest)
    say(
        f"nothing to do, 1,000 modules, {len(graph.steps)} steps: {median:.2f} s,"
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
            assert sum(step["kind"] == "device" for step in steps) == 16
    one, two = (statistics.median(found) for found in times.values())
    say(f"16 device compiles: -j1 {one:.1f} s, -j2 {two:.1f} s, ratio {one / two:.2f}")


PARTS = {
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
    # Users have compiled modules; a shell that forbids writing them would be measured instead.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(dir=given.directory) as place:
        for name in given.part or PARTS:
            PARTS[name](Path(place) / name)


if __name__ == "__main__":
    main()
