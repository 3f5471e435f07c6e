"""The verb build on a cluster: a scheduler and workers in processes of their own, on loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.project import counting_launcher, digests, run_in, started, write_project

pytestmark = [
    pytest.mark.llvm(22),
    pytest.mark.skipif(
        importlib.util.find_spec("distributed") is None, reason="distributed is not installed"
    ),
]
# The release is not in the flags, so that each worker takes the one that it was started with.
MANIFEST = """\
archs: [sm_75, sm_80, sm_90]
flags: --device-code=bitcode
modules: ['m*.mlir']
"""
MODULES, ARCHS = 2, 3
ENDINGS = (".o", ".images")


@dataclass(slots=True)
class Cluster:
    """A scheduler of its own port, and workers of one thread each."""

    folder: Path
    address: str = ""
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, tool: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a part of the cluster; return when it says that it is connected."""
        child = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{tool}", "--no-dashboard", *arguments],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def start_scheduler(self) -> None:
        child = self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        line = wait_for(child, "Scheduler at:")
        self.address = line.split()[-1]

    def start_worker(self, name: str, **environment: str) -> subprocess.Popen[str]:
        place = self.folder / name
        place.mkdir()
        options = ("--no-nanny", "--nthreads", "1", "--name", name, "--local-directory", str(place))
        return self.start("dask_worker", self.address, *options, **environment)

    def build(
        self, project: Path, command: list[str], *options: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        cluster = (f"--scheduler={self.address}", f"--store={self.folder / 'store'}")
        return run_in(project, [*command, "build", *cluster, *options], environment)


def wait_for(child: subprocess.Popen[str], text: str) -> str:
    assert child.stderr is not None
    lines = []
    for line in child.stderr:
        lines.append(line)
        if text in line:
            return line.strip()
    pytest.fail(f"a part of the cluster ended: {''.join(lines)}")


@contextlib.contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        cluster.start_scheduler()
        yield cluster
    finally:
        for child in reversed(cluster.children):
            child.kill()
            child.communicate()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> dict[str, str]:
    folder = write_project(tmp_path_factory.mktemp("local"), MANIFEST, MODULES)
    done = run_in(folder, [*mlir_offload, "build"], {"MLIR_OFFLOAD_LLVM": "22"})
    assert done.returncode == 0, done.stderr
    return digests(folder / "build", *ENDINGS)


def test_a_killed_worker_costs_only_the_steps_that_it_ran(
    local: dict[str, str], tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, MODULES)
    pid = tmp_path / "pid"
    launcher = str(counting_launcher(tmp_path, pid, fatal=4))
    tools = {"MLIR_OFFLOAD_LLVM": "22", "MLIR_OFFLOAD_LAUNCHER": launcher}
    with cluster_in(tmp_path) as cluster:
        first = cluster.start_worker("first", **tools)
        cluster.start_worker("second", **tools)
        pid.write_text(str(first.pid))
        # The build itself starts no image: its launcher would be counted.
        done = cluster.build(project, mlir_offload, "--report=r.json", MLIR_OFFLOAD_LLVM="22")
        assert done.returncode == 0, done.stderr
        assert first.wait(timeout=600) == -9
        assert digests(project / "build", *ENDINGS) == local
        images = MODULES * ARCHS
        # The step that killed, and the one that the lost worker may have been running.
        assert images <= len(started(tmp_path)) <= images + 2
        steps = json.loads((project / "r.json").read_text())["steps"]
        assert any(step["place"].startswith("second (tcp://") for step in steps)

        # Another checkout compiles nothing: all keys are in the store.
        count = len(started(tmp_path))
        other = write_project(tmp_path / "other", MANIFEST, MODULES)
        done = cluster.build(other, mlir_offload, MLIR_OFFLOAD_LLVM="22")
        assert done.returncode == 0, done.stderr
        assert digests(other / "build", *ENDINGS) == local
        assert len(started(tmp_path)) == count


def test_a_step_that_is_ended_from_outside_is_repeated(
    local: dict[str, str], tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST.replace("sm_75, sm_80, ", ""), modules=1)
    launcher = tmp_path / "ending"
    os.mkfifo(tmp_path / "never")
    # The first one ends the step that started it, and waits for its own end.
    launcher.write_text(
        f"""#!/bin/sh
if mkdir '{tmp_path}/ended' 2>/dev/null; then
  kill -TERM "$PPID"
  read line <'{tmp_path}/never'
fi
exec "$@"
"""
    )
    launcher.chmod(0o755)
    with cluster_in(tmp_path) as cluster:
        tools = {"MLIR_OFFLOAD_LLVM": "22", "MLIR_OFFLOAD_LAUNCHER": str(launcher)}
        cluster.start_worker("worker", **tools)
        done = cluster.build(project, mlir_offload, MLIR_OFFLOAD_LLVM="22")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ended").is_dir()
    image = "default/m0.mlir.sm_90.images"
    assert digests(project / "build", ".images") == {image: local[image]}


@pytest.mark.llvm(19)
def test_a_worker_with_other_tools_is_refused_by_name(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, modules=1)
    with cluster_in(tmp_path) as cluster:
        cluster.start_worker("old-tools", MLIR_OFFLOAD_LLVM="19")
        done = cluster.build(project, mlir_offload, MLIR_OFFLOAD_LLVM="22")
    assert done.returncode == 4, done.stderr
    assert "worker old-tools (tcp://127.0.0.1:" in done.stderr
    ids = [
        run_in(tmp_path, [*mlir_offload, "--toolchain-id", f"--llvm={llvm}"]).stdout.strip()
        for llvm in (19, 22)
    ]
    assert f"the tools here are not those of the build: {ids[0]}, not {ids[1]}" in done.stderr
    assert list((tmp_path / "project" / "build").rglob("*.images")) == []


def test_an_error_on_a_worker_is_told_once_with_its_place(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    manifest = MANIFEST.replace("[sm_75, sm_80, sm_90]", "host")
    project = write_project(tmp_path / "project", manifest, modules=1)
    module = project / "m0.mlir"
    wrong = "nvvm.cp.async.wait.group 0\n    gpu.terminator"
    module.write_text(module.read_text().replace("gpu.terminator", wrong))
    with cluster_in(tmp_path) as cluster:
        cluster.start_worker("worker", MLIR_OFFLOAD_LLVM="22")
        done = cluster.build(project, mlir_offload, MLIR_OFFLOAD_LLVM="22")
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("device host m0.mlir [default] failed on worker (tcp://") == 1
    assert "\nm0.mlir: error: nvvm.cp.async" in done.stderr


def test_a_build_that_waits_for_workers_can_be_interrupted(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, modules=1)
    with cluster_in(tmp_path) as cluster:
        options = ("-v", f"--scheduler={cluster.address}", f"--store={tmp_path / 'store'}")
        child = subprocess.Popen(
            [*mlir_offload, "build", *options], cwd=project, stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for(child, "--device-step")
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=600) == 130
        finally:
            child.kill()
            child.communicate()


def test_a_scheduler_that_is_not_there_is_an_error_soon(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path, MANIFEST, modules=1)
    cluster = Cluster(tmp_path, "tcp://127.0.0.1:9")
    patience = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}
    done = cluster.build(project, mlir_offload, **patience)
    assert done.returncode == 3
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in done.stderr
