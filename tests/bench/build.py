"""Time the verb build: what costs nothing to do, many modules, two processors, and a Dask cluster.

usage: python tests/bench/build.py [--part noop|plan|jobs|dask|loss] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".importroot"), str(ROOT / "tests")]

from support.project import counting_launcher, digests, started, write_project  # noqa: E402

from mlir_offload.driver.project.dask import run_on_worker  # noqa: E402
from mlir_offload.driver.project.file import read_project  # noqa: E402 (found by the line above)
from mlir_offload.driver.project.graph import ProjectStep, plan_project  # noqa: E402
from mlir_offload.driver.project.run import ProjectRun, StepEnd  # noqa: E402
from mlir_offload.driver.project.state import open_state  # noqa: E402
from mlir_offload.driver.project.store import StepStore  # noqa: E402
from mlir_offload.driver.project.tools import ToolFinder  # noqa: E402
from mlir_offload.driver.project.worker import StoredStep  # noqa: E402
from mlir_offload.toolchain.process import ProcessRunner  # noqa: E402

COMMAND = [sys.executable, "-m", "mlir_offload.driver", "build"]
ARCHS = "sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_120"
MANIFEST = "archs: [{archs}]\nflags: --device-code=bitcode\nmodules: ['m*.mlir']\n"
RUNS = 3
MANY, FEW = 1000, 100
COMPILES, FATAL = 64, 20


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

    def run(self, step: ProjectStep) -> StepEnd:
        for output in step.outputs:
            place = self.root / output
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(str(output) * 50)
        return StepEnd(0)

    def stop(self) -> None:
        """There is nothing to wait for."""


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


def measure_dask(folder: Path) -> None:
    from integration.test_project_dask import cluster_in

    local = write_project(folder / "local", MANIFEST.format(archs=ARCHS), 8)
    alone = timed(local, "-j2")
    (folder / "cluster").mkdir()
    with cluster_in(folder / "cluster") as cluster:
        for name in ("first", "second"):
            cluster.start_worker(name)
        options = (f"--scheduler={cluster.address}", f"--store={folder / 'store'}")
        runs = []
        for name in ("cold", "warm"):
            place = write_project(folder / name, MANIFEST.format(archs=ARCHS), 8)
            runs.append(timed(place, *options))
            assert digests(place / "build", ".o") == digests(local / "build", ".o")
        each_ms, alone_ms = task_costs_ms(cluster.address, folder)
    cost_ms = 1000 * (runs[0].seconds - alone.seconds) / 64
    say(
        f"64 device compiles: local -j2 {alone.seconds:.1f} s, 2 Dask workers {runs[0].seconds:.1f} s,"
        f" {cost_ms:.0f} ms more for each; all in the store {runs[1].seconds:.1f} s; equal bytes"
    )
    say(
        f"a task that finds its image: {each_ms:.1f} ms of many, {alone_ms:.1f} ms from submit to key"
    )


def measure_loss(folder: Path) -> None:
    from integration.test_project_dask import cluster_in

    manifest = MANIFEST.format(archs=ARCHS)
    local = write_project(folder / "local", manifest, 8)
    timed(local, "-j2")
    place = folder / "cluster"
    place.mkdir()
    launcher = str(counting_launcher(place, place / "pid", FATAL))
    with cluster_in(place) as cluster:
        workers = [
            cluster.start_worker(name, MLIR_OFFLOAD_LAUNCHER=launcher)
            for name in ("first", "second")
        ]
        (place / "pid").write_text(str(workers[0].pid))
        project = write_project(folder / "project", manifest, 8)
        run = timed(project, f"--scheduler={cluster.address}", f"--store={folder / 'store'}")
        assert workers[0].wait() == -signal.SIGKILL
    begun = len(started(place))
    # What the lost worker was doing, at most one step.
    assert COMPILES <= begun <= COMPILES + 1, begun
    assert digests(project / "build", ".o", ".images") == digests(local / "build", ".o", ".images")
    say(
        f"{COMPILES} device compiles, one of 2 Dask workers killed in number {FATAL}:"
        f" {run.seconds:.1f} s, {begun} begun; equal bytes"
    )


def task_costs_ms(address: str, folder: Path) -> tuple[float, float]:
    """Return what a task costs where nothing is to be compiled: of many at once, and one by one."""
    from distributed import Client

    store = StepStore(folder / "store")
    stored = StoredStep(str(store.directory), store.add_content(Path(__file__)), (), ())
    with Client(address) as client:  # type: ignore[no-untyped-call]  # Dask tells no types
        client.submit(run_on_worker, stored, pure=False).result()
        begin = time.monotonic()
        client.gather([client.submit(run_on_worker, stored, pure=False) for _ in range(MANY)])
        many = time.monotonic()
        for _ in range(FEW):
            client.submit(run_on_worker, stored, pure=False).result()
        end = time.monotonic()
    return 1000 * (many - begin) / MANY, 1000 * (end - many) / FEW


PARTS = {
    "noop": measure_noop,
    "plan": measure_plan,
    "jobs": measure_jobs,
    "dask": measure_dask,
    "loss": measure_loss,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    # For the driver, and for a scheduler and workers, which load its tasks.
    os.environ["PYTHONPATH"] = str(ROOT / ".importroot")
    # Users have compiled modules; a shell that forbids writing them would be measured instead.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(dir=given.directory) as place:
        for name in given.part or PARTS:
            PARTS[name](Path(place) / name)


if __name__ == "__main__":
    main()
