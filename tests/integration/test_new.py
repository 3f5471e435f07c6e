"""`mlir-offload new`: the project that it writes builds at once, with every build system that it has files for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mlir_offload.driver import new
from mlir_offload.toolchain.process import ProcessRunner

pytestmark = pytest.mark.llvm(22)
PRINTED = "10\n20\n30\n40\n"


def run(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(mlir_offload: list[str], tmp_path: Path) -> Path:
    made = run(*mlir_offload, "new", "my-kernels", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("Try: cd my-kernels && make && ./my_kernels\n")
    listed = [tmp_path / line for line in made.stdout.splitlines()[:-1]]
    assert sorted(listed) == sorted(p for p in (tmp_path / "my-kernels").rglob("*") if p.is_file())
    return tmp_path / "my-kernels"


@pytest.fixture
def path(mlir_offload: list[str], tmp_path: Path) -> dict[str, str]:
    """Return a PATH on which mlir-offload is this one."""
    program = tmp_path / "bin" / "mlir-offload"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(mlir_offload)} "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", "MLIR_OFFLOAD_ARCH": "host"}


def test_it_builds_with_make_with_build_and_from_python(
    project: Path, path: dict[str, str], tmp_path: Path
) -> None:
    built = run("make", cwd=project, **path)
    assert built.returncode == 0, built.stderr
    assert run("./my_kernels", cwd=project).stdout == PRINTED
    assert run("make", cwd=project, **path).stdout == "make: 'my_kernels' is up to date.\n"
    built = run("mlir-offload", "build", cwd=project, **path)
    assert built.returncode == 0, built.stderr
    assert run("build/default/bin/my_kernels", cwd=project).stdout == PRINTED
    done = run(sys.executable, "run.py", cwd=project, XDG_CACHE_HOME=str(tmp_path), **path)
    assert [float(line) for line in done.stdout.split()] == [10, 20, 30, 40], done.stderr


def test_it_builds_with_cmake(project: Path, path: dict[str, str]) -> None:
    place = run("mlir-offload", "--cmake-dir", cwd=project, **path).stdout.strip()
    words = ("-G", "Ninja", "-B", "build", f"-DMLIROffload_DIR={place}")
    for step in (("cmake", *words), ("cmake", "--build", "build")):
        done = run(*step, cwd=project, **path)
        assert done.returncode == 0, done.stdout + done.stderr
    assert run("build/my_kernels", cwd=project).stdout == PRINTED


def test_its_header_is_that_of_its_kernel_and_its_workflow_is_yaml(
    project: Path, mlir_offload: list[str]
) -> None:
    before = (project / "scale.h").read_text()
    assert run(*mlir_offload, "--emit-header=scale.h", "scale.mlir", cwd=project).returncode == 0
    assert (project / "scale.h").read_text() == before
    workflow = yaml.safe_load((project / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["build"]["steps"][-1]["run"].endswith("./my_kernels")


@pytest.mark.parametrize("place", ["full", "file", "file/inside"])
def test_it_replaces_nothing(mlir_offload: list[str], tmp_path: Path, place: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    done = run(*mlir_offload, "new", place, cwd=tmp_path)
    assert done.returncode == 7
    assert done.stderr.startswith(f"{place}: error: ")
    assert "hint: name a directory that does not exist, or that is empty" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full"]


def test_a_package_whose_files_pip_compiled_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = shutil.copytree(new._TEMPLATES, tmp_path / "installed")
    (installed / "__pycache__").mkdir(exist_ok=True)
    monkeypatch.setattr(new, "_TEMPLATES", installed)
    assert new.new([str(tmp_path / "made")], ProcessRunner()) == 0
    assert str(tmp_path / "made" / "run.py") in capsys.readouterr().out


def test_an_empty_directory_and_the_current_one_are_filled(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "2 fast").mkdir()
    done = run(*mlir_offload, "new", ".", cwd=tmp_path / "2 fast")
    assert done.returncode == 0, done.stderr
    assert "add_executable(2_fast " in (tmp_path / "2 fast" / "CMakeLists.txt").read_text()
