"""The files for build services and other build systems, as they are shipped."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dockerfile_parse import DockerfileParser

from mlir_offload.driver.option.subcommand import every_subcommand

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "docs" / "ci"
FILES = ("github.yml", "gitlab.yml", "Dockerfile", "bazel/BUILD")


@pytest.mark.parametrize(
    ("name", "schema"), [("github.yml", "github-workflows"), ("gitlab.yml", "gitlab-ci")]
)
def test_a_file_of_a_build_service_is_what_its_schema_says(
    name: str, schema: str, tmp_path: Path
) -> None:
    checker = [str(Path(sys.executable).parent / "check-jsonschema"), "--builtin-schema"]
    check = [*checker, f"vendor.{schema}"]
    subprocess.run([*check, CI / name], check=True, capture_output=True)
    # The check can fail.
    wrong = tmp_path / name
    wrong.write_text((CI / name).read_text().replace("stage: build", "stage: {}") + "jobs: 1\n")
    assert subprocess.run([*check, wrong], check=False, capture_output=True).returncode == 1


def scripts(name: str) -> list[str]:
    """Return the pieces of shell in a file."""
    if name == "Dockerfile":
        parser = DockerfileParser(fileobj=io.BytesIO((CI / name).read_bytes()))
        return [line["value"] for line in parser.structure if line["instruction"] == "RUN"]
    if name == "bazel/BUILD":
        return re.findall(r'cmd = "(.*)"', (CI / name).read_text())
    content = yaml.safe_load((CI / name).read_text())
    if name == "github.yml":
        steps = (step for job in content["jobs"].values() for step in job["steps"])
        return [step["run"] for step in steps if "run" in step]
    return [line for job in content.values() if "script" in job for line in job["script"]]


@pytest.mark.parametrize("name", FILES)
def test_the_shell_in_a_file_is_shell(name: str) -> None:
    for script in scripts(name):
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml", "bazel/BUILD"])
def test_the_options_in_a_file_are_those_of_the_compiler(name: str) -> None:
    calls = [
        line for script in scripts(name) for line in script.splitlines() if "mlir-offload -" in line
    ]
    assert calls
    for call in calls:
        words = shlex.split(call.partition("mlir-offload ")[2])
        options = [word for word in words if word.startswith("-")]
        assert all(every_subcommand()[""].find(option) for option in options), call


@pytest.mark.parametrize("name", ["github.yml", "Dockerfile"])
def test_a_file_installs_what_setup_installs(name: str) -> None:
    setup = (ROOT / "toolchain" / "setup.sh").read_text()
    packages = re.search(r'^run\)\n\s+packages="([^"]*)"', setup, re.MULTILINE)
    assert packages is not None
    installed = " ".join(scripts(name)).split()
    assert set(packages[1].split()) <= set(installed)


def test_the_dockerfile_is_read_as_it_is_meant() -> None:
    parser = DockerfileParser(fileobj=io.BytesIO((CI / "Dockerfile").read_bytes()))
    instructions = [line["instruction"] for line in parser.structure]
    assert [name for name in instructions if name != "COMMENT"] == [
        *("FROM", "RUN", "COPY", "RUN", "WORKDIR", "ENTRYPOINT", "CMD")
    ]
    assert parser.baseimage == "debian:bookworm-slim"


@pytest.mark.llvm(22)
def test_meson_builds_runs_and_builds_again_only_what_it_must(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    source, build, tools = tmp_path / "source", tmp_path / "build", tmp_path / "bin"
    shutil.copytree(CI / "meson", source)
    for name in ("square.mlir", "main.c"):
        shutil.copy(ROOT / "docs" / "examples" / name, source)
    tools.mkdir()
    (tools / "mlir-offload").write_text(f'#!/bin/sh\nexec {shlex.join(mlir_offload)} "$@"\n')
    (tools / "mlir-offload").chmod(0o755)
    path = os.pathsep.join((str(tools), "/usr/lib/llvm-22/bin", os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "CC": "clang"}

    def run(*command: str) -> str:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    run(sys.executable, "-m", "mesonbuild.mesonmain", "setup", "build", "source")
    run("ninja", "-C", "build")
    assert run(str(build / "main")) == "square: ok, 1000 elements\n"
    assert "no work to do" in run("ninja", "-C", "build")
    os.utime(source / "square.mlir")
    assert "square.o" in run("ninja", "-C", "build", "-v")
