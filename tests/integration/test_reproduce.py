"""A call packed into an archive, and run again somewhere else."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.unpack import unpack

pytestmark = pytest.mark.llvm(22)

PREFIX = Path("/usr/lib/llvm-22")
HOST = "--offload-arch=host"
BAD = "func.func @f() {\n  foo.bar\n  return\n}\n"
GOOD = "func.func @f() {\n  return\n}\n"

Compiler = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def compiler(mlir_offload: list[str], tmp_path: Path) -> Compiler:
    """Return the compiler as a function that runs it in the directory `there`."""
    (tmp_path / "there").mkdir()

    def run(
        *arguments: str | Path, status: int, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [*mlir_offload, *map(str, arguments)],
            cwd=tmp_path / "there",
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == status, result.stderr
        return result

    return run


def unpacked(archive: Path, place: Path) -> Path:
    with tarfile.open(archive) as opened:
        unpack(opened, place)
    return place / "reproduce"


def rerun(
    folder: Path, mlir_offload: list[str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MLIR_OFFLOAD": shlex.join(mlir_offload)}
    return subprocess.run(
        ["sh", str(folder / "run.sh"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def prefix_with(place: Path, tool: str, script: str) -> Path:
    """Make an installation of LLVM in which one tool is a script."""
    (place / "bin").mkdir(parents=True)
    for path in (PREFIX / "bin").iterdir():
        if path.name != tool:
            (place / "bin" / path.name).symlink_to(path)
    for name in ("lib", "include"):
        (place / name).symlink_to(PREFIX / name)
    (place / "bin" / tool).write_text(script)
    (place / "bin" / tool).chmod(0o755)
    return place


def crashing(tool: str, command: str) -> str:
    """Return a tool that says its release and comes to a bad end at everything else."""
    return f'#!/bin/sh\ncase "$1" in --version) exec {PREFIX}/bin/{tool} "$@" ;; esac\n{command}\n'


def test_a_failure_is_the_same_elsewhere(
    compiler: Compiler, mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "there" / "src").mkdir()
    (tmp_path / "there" / "src" / "k.mlir").write_text(BAD)
    first = compiler("-c", HOST, "src/k.mlir", "-o", "out/k.o", status=7)
    (tmp_path / "there" / "out").mkdir()
    first = compiler("-c", HOST, "src/k.mlir", "-o", "out/k.o", "--reproduce=r.tar", status=1)
    assert "r.tar reproduces the error" in first.stderr
    folder = unpacked(tmp_path / "there" / "r.tar", tmp_path / "elsewhere")
    (tmp_path / "there" / "src" / "k.mlir").unlink()
    second = rerun(folder, mlir_offload)
    assert second.returncode == 1
    assert first.stderr.splitlines()[0] == second.stderr.splitlines()[0]
    assert (folder / "error").read_text().splitlines()[0] == first.stderr.splitlines()[0]


def test_equal_calls_give_equal_archives_that_name_no_place(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "there" / "k.mlir").write_text(GOOD)
    for name in ("one.tar", "two.tar"):
        compiler("-c", HOST, "k.mlir", f"--reproduce={name}", status=0, CPATH="", LANG="C")
    one, two = ((tmp_path / "there" / name).read_bytes() for name in ("one.tar", "two.tar"))
    assert one == two
    assert str(tmp_path).encode() not in one
    assert b"/usr/lib" not in one
    assert b"/tmp/" not in one
    assert b"Debian" in one or b"clang version" in one


def test_sources_headers_and_libraries_go_with_the_call(
    compiler: Compiler, mlir_offload: list[str], tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "deep.h").write_text("int one(void);\n")
    (there / "near.h").write_text('#include "deep.h"\n')
    (there / "main.c").write_text('#include "near.h"\nint main(void) { return one(); }\n')
    (there / "one.c").write_text("int one(void) { return 1; }\n")
    (there / "lib").mkdir()
    subprocess.run([PREFIX / "bin/clang", "-c", "one.c"], cwd=there, check=True)
    subprocess.run([PREFIX / "bin/llvm-ar", "rcs", "lib/libone.a", "one.o"], cwd=there, check=True)
    arguments = ("main.c", "-I../include", "-L", "lib", "-lone", "-o", tmp_path / "main")
    compiler(*arguments, "--reproduce=r.tar", status=0)
    folder = unpacked(there / "r.tar", tmp_path / "elsewhere")
    for path in (there / "main.c", there / "lib" / "libone.a", tmp_path / "include" / "deep.h"):
        path.unlink()
    again = rerun(folder, mlir_offload)
    assert again.returncode == 0, again.stderr
    made = next((folder / "files").rglob("main"))
    assert subprocess.run([made], check=False).returncode == 1


@pytest.mark.parametrize(
    ("tool", "command", "said"),
    [
        ("mlir-opt", "kill -SEGV $$", "killed by SIGSEGV"),
        ("clang", 'echo "PLEASE submit a bug report to X" >&2; exit 70', "exit status 70"),
    ],
)
def test_a_tool_that_crashes_leaves_an_archive_that_the_error_names(
    compiler: Compiler,
    mlir_offload: list[str],
    tmp_path: Path,
    tool: str,
    command: str,
    said: str,
) -> None:
    prefix = prefix_with(tmp_path / "llvm", tool, crashing(tool, command))
    (tmp_path / "there" / "k.mlir").write_text(GOOD)
    result = compiler("-c", HOST, f"--llvm={prefix}", "k.mlir", status=5)
    assert said in result.stderr
    (archive,) = (tmp_path / "there").glob("mlir-offload-crash-*.tar")
    assert f"{archive.name} reproduces the error" in result.stderr
    folder = unpacked(archive, tmp_path / "elsewhere")
    assert str(prefix) in (folder / "README").read_text()
    # With a sound tool the call succeeds; with the bad one it fails in the same way.
    assert rerun(folder, mlir_offload).returncode == 0
    bad = rerun(folder, mlir_offload, f"--llvm={prefix}", "-fno-crash-diagnostics")
    assert (bad.returncode, said in bad.stderr) == (5, True)
    # The tool alone, on the file that it got.
    environment = {**os.environ, "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"}
    step = subprocess.run(["sh", folder / "step.sh"], env=environment, check=False, stderr=-1)
    assert step.returncode in {-signal.SIGSEGV, 70}


def test_a_crash_where_nobody_can_write_is_packed_among_temporary_files(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    prefix = prefix_with(tmp_path / "llvm", "mlir-opt", crashing("mlir-opt", "kill -ABRT $$"))
    (tmp_path / "k.mlir").write_text(GOOD)
    (tmp_path / "temporary").mkdir()
    arguments = ("-c", HOST, f"--llvm={prefix}", tmp_path / "k.mlir", "-o", tmp_path / "k.o")
    result = subprocess.run(
        [*mlir_offload, *map(str, arguments)],
        # Root cannot make a file there either.
        cwd="/proc",
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        check=False,
    )
    (archive,) = (tmp_path / "temporary").glob("mlir-offload-crash-*.tar")
    assert str(archive) in result.stderr


def test_no_archive_is_made_where_nobody_wants_it(compiler: Compiler, tmp_path: Path) -> None:
    prefix = prefix_with(tmp_path / "llvm", "mlir-opt", crashing("mlir-opt", "kill -SEGV $$"))
    (tmp_path / "there" / "k.mlir").write_text(GOOD)
    compiler("-c", HOST, f"--llvm={prefix}", "-fno-crash-diagnostics", "k.mlir", status=5)
    (tmp_path / "there" / "bad.mlir").write_text(BAD)
    compiler("-c", HOST, "bad.mlir", status=1)
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["bad.mlir", "k.mlir"]
