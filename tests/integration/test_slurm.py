"""Steps under a real SLURM: one node on loopback, as docs/howto/projects.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.project import digests, run_in, write_project
from support.slurm import slurm_cluster

pytestmark = pytest.mark.llvm(22)
MANIFEST = "archs: [sm_80, sm_90]\nflags: --device-code=bitcode\nmodules: ['m*.mlir']\n"
MODULES, ARCHS = 1, 2
ENDINGS = (".o", ".images")
LLVM = {"MLIR_OFFLOAD_LLVM": "22"}
# Which job and which step of it ran what.
LAUNCHER = """\
#!/bin/sh
echo "$SLURM_JOB_ID.$SLURM_STEP_ID $*" >>'{folder}/log'
exec "$@"
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> dict[str, str]:
    folder = write_project(tmp_path_factory.mktemp("local"), MANIFEST, MODULES)
    done = run_in(folder, [*mlir_offload, "build"], LLVM)
    assert done.returncode == 0, done.stderr
    return digests(folder / "build", *ENDINGS)


def noting_launcher(folder: Path) -> Path:
    script = folder / "launcher"
    script.write_text(LAUNCHER.format(folder=folder))
    script.chmod(0o755)
    return script


def test_srun_runs_the_steps_of_a_build_as_jobs(
    slurm: dict[str, str], local: dict[str, str], tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, MODULES)
    launcher = f"--launcher=srun -Q -N1 -n1 {noting_launcher(tmp_path)}"
    done = run_in(project, [*mlir_offload, "build", "-j2", launcher], {**slurm, **LLVM})
    assert done.returncode == 0, done.stderr
    assert digests(project / "build", *ENDINGS) == local
    jobs = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert all(re.fullmatch(r"\d+\.0", job) for job in jobs)
    # An image each, and the host code and the object of each module.
    assert len(set(jobs)) == len(jobs) == MODULES * (ARCHS + 2)


def test_what_srun_refuses_is_told(
    slurm: dict[str, str], tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path, MANIFEST, modules=1)
    launcher = "--launcher=srun -Q -p nowhere"
    command = [*mlir_offload, "-c", "--offload-arch=sm_80", launcher, "m0.mlir"]
    done = run_in(project, command, {**slurm, **LLVM})
    assert done.returncode == 5
    assert "a step fails under the launcher 'srun' only" in done.stderr
    assert "invalid partition specified: nowhere" in done.stderr
    assert not (project / "m0.o").exists()
