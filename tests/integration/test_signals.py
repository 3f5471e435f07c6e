"""SIGINT and SIGTERM at random moments: nothing is left, whatever is made, and for every target."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import pytest
from support.stress import FACTOR, rounds

pytestmark = [pytest.mark.llvm(22), pytest.mark.soak]
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
LONGEST_S = 600
MANIFEST = """\
archs: [sm_90, host]
flags: --llvm=22
modules: [saxpy.mlir]
targets:
  app: {inputs: [saxpy.mlir]}
"""
# What is interrupted: the command, and how many lines it prints with -v, about.
CALLS: Mapping[str, tuple[Sequence[str], int]] = {
    **{
        f"compile for {arch}": (("-c", f"--offload-arch={arch}", "saxpy.mlir", "-o", "out/k.o"), 20)
        for arch in ("sm_90", "gfx90a", "spirv64", "host")
    },
    "link": (("--offload-arch=sm_90,host", "saxpy.mlir", "-o", "out/app"), 35),
    "library": (("-shared", "-fPIC", "square.mlir", "--emit-header=out/s.h", "-o", "out/s.so"), 30),
    "final object": (("-c", "-fno-gpu-rdc", "saxpy.mlir", "-o", "out/k.o"), 25),
    "bundle": (("bundle", "--offload-arch=host", "saxpy.mlir", "-o", "out/b.mob"), 10),
    "link of a bundle": (("link", "made.mob", "-o", "out/app"), 20),
    "build": (("build",), 8),
}
# A signal comes behind a line that is printed and, in `make stress`, up to so much later.
LATER_S = 0.3


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name in ("saxpy.mlir", "square.mlir"):
        shutil.copy(EXAMPLES / name, folder)
    (folder / "offload.yaml").write_text(MANIFEST)
    made = ("bundle", "--offload-arch=host", "saxpy.mlir", "-o", "made.mob")
    subprocess.run([*mlir_offload, *made], cwd=folder, check=True, capture_output=True)
    return folder


def _session(leader: int) -> list[str]:
    """Return the processes of a session that have not ended, by their names."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            state, _, _, session = rest.split()[:4]
            if int(session) == leader and state not in "ZX":
                found.append(name)
    return found


def _temporary(folder: Path) -> list[str]:
    """Return the names that only a call that is under way may have."""
    names = [path.name for path in folder.rglob("*")]
    return [name for name in names if name.endswith(".tmp") or name.startswith("mlir-offload-")]


@pytest.mark.parametrize("number", rounds(5))
def test_a_signal_leaves_nothing(
    number: int, sources: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    point = random.Random(number)  # noqa: S311 (no secret)
    name = point.choice(list(CALLS))
    words, lines = CALLS[name]
    folder, temporary = tmp_path / "work", tmp_path / "temporary"
    shutil.copytree(sources, folder)
    (folder / "out").mkdir()
    temporary.mkdir()
    child = subprocess.Popen(
        [*mlir_offload, *words, "-v"],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stderr is not None
        before = "".join(islice(child.stderr, point.randint(0, lines)))
        time.sleep(point.uniform(0, LATER_S) if FACTOR > 1 else 0)
        child.send_signal(point.choice(SIGNALS))
        said = before + child.communicate(timeout=LONGEST_S)[1]
        assert _session(child.pid) == [], name
    finally:
        child.kill()
        child.wait()
    # Before Python hears of signals, the system ends the process.
    assert child.returncode in {0, 130, *(-number for number in SIGNALS)}, said
    assert "Traceback" not in said or child.returncode < 0, said
    assert list(temporary.iterdir()) == []
    assert _temporary(folder) == []
    made = [path for path in (folder / "out").iterdir() if path.stat().st_size == 0]
    assert made == []


# A signal that comes just before the end of a block is heard before what ends the block has begun.
_INTERRUPTED_END = """\
from mlir_offload.driver import cli
from mlir_offload.driver.compile import context

made, open_workspace = [], context.open_workspace

class Workspace:
    def __init__(self, *given):
        self.workspace = open_workspace(*given)
        made.append(self.workspace)

    def __enter__(self):
        return self.workspace.__enter__()

    def __exit__(self, *_):
        raise KeyboardInterrupt

context.open_workspace = Workspace
cli.main(["-c", "--offload-arch=sm_90", "saxpy.mlir", "-o", "out.o"])
"""


def test_a_signal_at_the_end_of_the_work_leaves_no_directory(sources: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = str(Path(__file__).resolve().parents[2] / ".importroot")
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_END],
        cwd=sources,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert list(temporary.iterdir()) == []


def test_a_parent_that_ignores_the_ends_of_children_changes_nothing(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    (tmp_path / "good.mlir").write_text("func.func @f() { return }\n")
    (tmp_path / "bad.mlir").write_text("func.func @f() { unknown }\n")
    for name, status in (("good", 0), ("bad", 1)):
        call = ("env", "--ignore-signal=CHLD", *mlir_offload, "-fsyntax-only", f"{name}.mlir")
        done = subprocess.run(
            call, cwd=tmp_path, capture_output=True, timeout=LONGEST_S, check=False
        )
        assert done.returncode == status, done.stderr
