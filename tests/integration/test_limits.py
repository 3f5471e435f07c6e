"""A low limit of the system is reported as such: not as a traceback, a missing tool or a wrong program."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mlir_offload.toolchain.limit import limit_in_text

pytestmark = pytest.mark.llvm(22)
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
COMPILE = ("--offload-arch=host", "saxpy.mlir", "-o", "app")
BUILD = ("build",)
FILES, MEMORY = resource.RLIMIT_NOFILE, resource.RLIMIT_AS
WRONG = ("Traceback", "no LLVM", "not installed", "apt install", "wrong in the program")


@pytest.mark.parametrize(
    ("kind", "most", "words"),
    [
        (FILES, 10, COMPILE),
        (FILES, 14, COMPILE),
        (FILES, 16, COMPILE),
        (FILES, 16, BUILD),
        (FILES, 10, ("inspect", "saxpy.mlir")),
        (FILES, 13, ("bundle", "-o", "b.mob", "saxpy.mlir")),
        (MEMORY, 100_000 << 10, COMPILE),
        (MEMORY, 300_000 << 10, COMPILE),
        (MEMORY, 100_000 << 10, BUILD),
    ],
)
def test_a_low_limit_is_named(
    kind: int, most: int, words: tuple[str, ...], tmp_path: Path, mlir_offload: list[str]
) -> None:
    (tmp_path / "saxpy.mlir").write_text((EXAMPLES / "saxpy.mlir").read_text())
    (tmp_path / "offload.yaml").write_text("archs: host\nmodules: [saxpy.mlir]\n")
    done = subprocess.run(
        [*mlir_offload, *words, *(() if words[0] == "inspect" else ("-j4",))],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(kind, (most, most)),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    said = done.stderr
    # What some files suffice for is done.
    assert done.returncode in ({7} if kind == MEMORY or most <= 10 else {0, 7}), said
    assert not any(word in said for word in WRONG), said
    if done.returncode:
        assert ("ulimit -n" if kind == FILES else "ulimit -v") in said
        assert "hint: the limit is" in said


@pytest.mark.parametrize(("most", "is_limited"), [(1 << 40, True), (resource.RLIM_INFINITY, False)])
def test_a_thread_without_a_stack_is_a_matter_of_memory(most: int, is_limited: bool) -> None:  # noqa: FBT001
    before = resource.getrlimit(MEMORY)
    resource.setrlimit(MEMORY, (most, before[1]))
    try:
        error = limit_in_text("mlir-offload", "can't start new thread")
    finally:
        resource.setrlimit(MEMORY, before)
    assert error is not None
    assert ("ulimit -v" in error.hint) is is_limited


_RAISING = """\
from mlir_offload.driver import cli

def fail(*_):
    raise SystemError("error return without exception set")

cli._dispatch = fail
cli.main(["inspect", "x"])
"""


@pytest.mark.parametrize("is_limited", [True, False])
def test_an_import_that_gets_no_memory_is_a_matter_of_memory(is_limited: bool) -> None:  # noqa: FBT001
    most = 1 << 40 if is_limited else resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", _RAISING],
        preexec_fn=lambda: resource.setrlimit(MEMORY, (most, resource.RLIM_INFINITY)),
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parents[1] / ".importroot")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (7 if is_limited else 1)
    assert ("ulimit -v" in done.stderr) is is_limited
