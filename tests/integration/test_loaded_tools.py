"""Tools that are loaded once and forked: what is compiled is the same, and a call starts fewer programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
EVERY_KIND = "host,sm_90,gfx90a,spirv64"
# The driver, which writes the names of the programs that it starts.
OBSERVED = """\
import json, os, pathlib
from mlir_offload.driver.cli import main
from mlir_offload.toolchain import process

started = []
start, open_server = process.ProcessRunner._start, process._open_server

def noting(self, command, **named):
    started.append(command.program)
    return start(self, command, **named)

def noting_server(program, environment, socket):
    started.append("loaded " + pathlib.Path(program).name)
    return open_server(program, environment, socket)

process.ProcessRunner._start, process._open_server = noting, noting_server
leave = os._exit

def leaving(status):
    pathlib.Path("started.json").write_text(json.dumps(started))
    leave(status)

os._exit = leaving
main()
"""


@pytest.mark.parametrize("name", ["saxpy", "reduction", "histogram", "two_modules", "printf"])
@pytest.mark.parametrize(
    "llvm", [pytest.param(major, marks=pytest.mark.llvm(major)) for major in (19, 22)]
)
def test_forks_of_loaded_tools_make_the_same_object(
    llvm: int, name: str, tmp_path: Path, mlir_offload: list[str]
) -> None:
    archs = EVERY_KIND if llvm > 19 else EVERY_KIND.removesuffix(",spirv64")
    objects = []
    for cache in (str(tmp_path), os.devnull):
        output = tmp_path / "made.o"
        words = (f"--llvm={llvm}", f"--offload-arch={archs}", "-c", EXAMPLES / f"{name}.mlir")
        subprocess.run(
            [*mlir_offload, *words, "-o", output],
            check=True,
            env={**os.environ, "XDG_CACHE_HOME": cache},
        )
        objects.append(output.read_bytes())
    assert objects[0] == objects[1]


def _started(folder: Path, environment: Mapping[str, str], *words: str) -> list[str]:
    """Return the programs that a call starts; versions of tools are known already."""
    paths = {"PYTHONPATH": str(ROOT / ".importroot")}
    source = str(EXAMPLES / "saxpy.mlir")
    done = subprocess.run(
        [sys.executable, "-c", OBSERVED, "--offload-arch=sm_90", "-c", source, "-o", "a.o", *words],
        cwd=folder,
        env={**os.environ, **paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    started: list[str] = json.loads((folder / "started.json").read_text())
    return started


ONCE = ["loaded clang", "loaded mlir-opt"]
EACH_TIME = ["clang", "clang", "mlir-opt", "mlir-opt", "mlir-translate"]


@pytest.mark.llvm(22)
def test_a_call_loads_each_tool_once(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    _started(tmp_path, cache)
    assert sorted(_started(tmp_path, cache)) == ONCE
    counted = {"LLVM_PROFILE_FILE": str(tmp_path / "%p.profraw")}
    assert sorted(_started(tmp_path, cache | counted)) == EACH_TIME


@pytest.mark.llvm(22)
@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_library_that_others_can_write_is_not_loaded(mode: int, tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    _started(tmp_path, cache)
    (library,) = (tmp_path / "cache" / "mlir-offload" / "fork-server").iterdir()
    library.chmod(mode)
    assert sorted(_started(tmp_path, cache)) == EACH_TIME


@pytest.mark.llvm(22)
def test_without_a_cache_every_tool_is_started(tmp_path: Path) -> None:
    started = _started(tmp_path, {"XDG_CACHE_HOME": os.devnull})
    # Their versions are not known then, either.
    assert set(started) == {*EACH_TIME, "ptxas"}


@pytest.mark.llvm(22)
def test_a_dry_run_compiles_no_library(tmp_path: Path) -> None:
    _started(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache")}, "-###")
    assert not (tmp_path / "cache" / "mlir-offload" / "fork-server").exists()


@pytest.mark.llvm(22)
def test_the_steps_of_a_build_share_the_loaded_tools(tmp_path: Path) -> None:
    source = (EXAMPLES / "saxpy.mlir").read_text()
    names = [f"m{number}.mlir" for number in range(4)]
    for name in names:
        (tmp_path / name).write_text(source)
    manifest = f"archs: sm_90\nmodules: [{', '.join(names)}]\n"
    (tmp_path / "offload.yaml").write_text(manifest)
    log = tmp_path / "programs"
    call = [sys.executable, "-m", "mlir_offload.driver", "build", "-j2"]
    traced = ("strace", "-f", "-e", "trace=execve", "-o", log)
    environment = {"PYTHONPATH": str(ROOT / ".importroot"), "XDG_CACHE_HOME": str(tmp_path / "c")}
    for _ in range(2):
        shutil.rmtree(tmp_path / "build", ignore_errors=True)
        subprocess.run(
            [*traced, *call], cwd=tmp_path, check=True, env={**os.environ, **environment}
        )
    started = Counter(
        re.findall(r'execve\("[^"]*/([^"/]+)", .* = 0$', log.read_text(), re.MULTILINE)
    )
    assert (started["mlir-opt"], started["mlir-translate"], started["clang"]) == (1, 0, 1)


OWN_TRANSLATE = """\
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
  FILE *log = fopen("log", "a");
  fprintf(log, "%s\\n", words[1]);
  fclose(log);
  return execv("/usr/lib/llvm-22/bin/mlir-translate", words);
}
"""


@pytest.mark.llvm(22)
def test_a_translator_that_the_user_names_is_started(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    (tmp_path / "own.c").write_text(OWN_TRANSLATE)
    own = {name: tmp_path / name for name in ("mlir-opt", "mlir-translate")}
    build = ("/usr/lib/llvm-22/bin/clang", "own.c", "-o", own["mlir-translate"])
    subprocess.run(build, cwd=tmp_path, check=True)
    own["mlir-opt"].symlink_to("/usr/lib/llvm-22/bin/mlir-opt")
    words = ("--offload-arch=host", "-c", str(EXAMPLES / "saxpy.mlir"), "-o", "made.o")
    named = [f"--{name}={path}" for name, path in own.items()]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    call = [*mlir_offload, *named, *words]
    subprocess.run(call, cwd=tmp_path, check=True, env=environment)
    assert "--mlir-disable-threading" in (tmp_path / "log").read_text()
