"""Builds by GNU make and Ninja: right dependencies, nothing run twice, no more at once than allowed."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pytest
from support.cuda_tools import cuda_root

pytestmark = pytest.mark.llvm(22)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "make"
SAXPY = ROOT / "docs" / "examples" / "saxpy.mlir"
LLVM = Path("/usr/lib/llvm-22")
CUDA = cuda_root()
HOST = "--offload-arch=host"
# A program that runs others does no work of its own; asking for a version is none.
_LOGGED = """\
#!/bin/sh
case "$*" in *--offload-link*|*--version*) exec {real} "$@";; esac
echo + >> {log}
{real} "$@"
status=$?
echo - >> {log}
exit $status
"""
_STOPPED = """\
#!/bin/sh
case "$*" in *gpu-kernel-outlining*|*--version*) exec {real} "$@";; esac
echo started > {events}
exec sleep 6000
"""
_STARTED = b"started\n"
_LONGEST_S = 600


@dataclass
class Prefix:
    """An installation of LLVM whose programs note when they start and end."""

    path: Path
    log: Path

    def peak(self) -> int:
        """Return how many ran at once."""
        lines = self.log.read_text().split()
        assert lines.count("+") == lines.count("-")
        return max(accumulate(1 if line == "+" else -1 for line in lines))


def make_prefix(place: Path, scripts: dict[str, str]) -> Path:
    """Make an installation of LLVM in which scripts stand in front of some programs.

    What clang and the linker wrapper start they look for where they are themselves: so they are
    copies, not links.
    """
    (place / "bin").mkdir(parents=True)
    (place / "lib").symlink_to(LLVM / "lib")
    for tool in (LLVM / "bin").iterdir():
        own = place / "bin" / tool.name
        if tool.name in {"clang", "clang-linker-wrapper"}:
            shutil.copy(tool, own)
        else:
            own.symlink_to(tool)
    for name, script in scripts.items():
        own = place / "bin" / name
        real = (
            own.rename(place / "bin" / f"{name}.real")
            if not own.is_symlink()
            else LLVM / "bin" / name
        )
        own.unlink(missing_ok=True)
        own.write_text(script.replace("{real}", shlex.quote(str(real))))
        own.chmod(0o755)
    return place


@pytest.fixture
def logged(tmp_path: Path) -> Prefix:
    log = tmp_path / "tools.log"
    script = _LOGGED.replace("{log}", shlex.quote(str(log)))
    names = ("clang", "mlir-opt", "mlir-translate")
    return Prefix(make_prefix(tmp_path / "llvm", dict.fromkeys(names, script)), log)


@dataclass
class Server:
    """A jobserver behind a FIFO, as make 4.4 has one."""

    path: Path
    end: int

    def tokens(self) -> bytes:
        """Take all tokens that are there."""
        try:
            return os.read(self.end, 64)
        except BlockingIOError:
            return b""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "MAKEFLAGS": f"-j9 --jobserver-auth=fifo:{self.path}"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    path = tmp_path / "server"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.write(end, b"++")
    yield Server(path, end)
    os.close(end)


def make(place: Path, *arguments: str) -> str:
    """Run make and return what it printed; it must succeed."""
    result = subprocess.run(
        ["make", *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def made(output: str) -> list[str]:
    """Return what the rules made, in alphabetical order."""
    lines = [line.split() for line in output.splitlines() if " -o " in line]
    return sorted(line[line.index("-o") + 1] for line in lines)


def test_the_documented_makefile_builds_what_must_be_built(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    place = shutil.copytree(EXAMPLE, tmp_path / "example")
    arguments = ("-j2", f"MLIR_OFFLOAD={shlex.join(mlir_offload)}", "ARCHS=host")
    assert made(make(place, *arguments)) == ["main.o", "scale", "scale.o", "shift.o"]
    ran = subprocess.run([place / "scale"], capture_output=True, text=True, check=True)
    assert "ok" in ran.stdout

    assert "is up to date" in make(place, *arguments)
    for touched, rebuilt in (("kernels.h", "main.o"), ("shift.mlir", "shift.o")):
        os.utime(place / touched)
        assert made(make(place, *arguments)) == sorted([rebuilt, "scale"])
    # What was included and is gone stops nothing, thanks to -MP.
    source = (place / "main.c").read_text()
    header = (place / "kernels.h").read_text()
    (place / "main.c").write_text(source.replace('#include "kernels.h"', header))
    (place / "kernels.h").unlink()
    assert made(make(place, *arguments)) == ["main.o", "scale"]
    make(place, "clean")
    assert {path.suffix for path in place.iterdir()} == {"", ".c", ".mlir"}


def write_makefile(place: Path, command: Sequence[str], names: Sequence[str]) -> None:
    objects = " ".join(f"{name}.o" for name in names)
    compiler = shlex.join(command)
    link = f"prog: main.c {objects}\n\t+{compiler} $^ -o $@\n"
    (place / "Makefile").write_text(f"{link}%.o: %.mlir\n\t+{compiler} -c $< -o $@\n")


def copies(place: Path, names: Sequence[str]) -> None:
    """Write a file with a kernel under each name, and a main program."""
    text = (EXAMPLE / "scale.mlir").read_text()
    for name in names:
        (place / f"{name}.mlir").write_text(text.replace("@scale(", f"@{name}("))
    (place / "main.c").write_text("int main(void) { return 0; }")


def test_make_and_all_its_compilers_run_no_more_at_once_than_make_was_told(
    mlir_offload: list[str], tmp_path: Path, logged: Prefix
) -> None:
    # Two compilers with two GPUs each could run four programs at once; there is one slot to ask for.
    jobs = 3
    names = ["a", "b"]
    copies(tmp_path, names)
    archs = "--offload-arch=sm_80,sm_90"
    command = [*mlir_offload, f"--llvm={logged.path}", f"--cuda-path={CUDA}", archs]
    write_makefile(tmp_path, command, names)
    make(tmp_path, f"-j{jobs}")
    assert 2 <= logged.peak() <= jobs
    # 6 for each file; the runtime, main.c, and a device link for each architecture.
    assert logged.log.read_text().split().count("+") == 6 * len(names) + 4


def test_without_a_plus_a_pipe_is_out_of_reach_and_the_compiler_runs_one_program_at_a_time(
    mlir_offload: list[str], tmp_path: Path, logged: Prefix
) -> None:
    copies(tmp_path, ["a"])
    write_makefile(tmp_path, [*mlir_offload, f"--llvm={logged.path}", HOST], ["a"])
    makefile = (tmp_path / "Makefile").read_text()
    (tmp_path / "Makefile").write_text(makefile.replace("\t+", "\t"))
    make(tmp_path, "-j4", *pipe_form())
    assert logged.peak() == 1


def pipe_form() -> tuple[str, ...]:
    """Return the option for the jobserver of make up to 4.3; the FIFO of 4.4 needs no plus."""
    said = subprocess.run(["make", "--version"], capture_output=True, text=True, check=True).stdout
    version = said.split("\n", 1)[0].split()[-1].split(".")
    return ("--jobserver-style=pipe",) if tuple(map(int, version[:2])) >= (4, 4) else ()


def ninja() -> str | None:
    """Return a Ninja that is a client of jobservers, which it is since 1.13."""
    program = shutil.which("ninja", path=str(Path(sys.executable).parent))
    if program is None:
        return None
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return program if tuple(map(int, version.stdout.split(".")[:2])) >= (1, 13) else None


@pytest.mark.skipif(ninja() is None, reason="needs Ninja 1.13, which pip has")
def test_ninja_and_its_compilers_share_one_fifo(
    mlir_offload: list[str], tmp_path: Path, logged: Prefix, server: Server
) -> None:
    names = ["a", "b", "c"]
    copies(tmp_path, names)
    command = shlex.join([*mlir_offload, f"--llvm={logged.path}", HOST, "-c"])
    rules = [f"rule cc\n  command = {command} $in -o $out\n"]
    rules += [f"build {name}.o: cc {name}.mlir\n" for name in names]
    (tmp_path / "build.ninja").write_text("".join(rules))
    program = str(ninja())
    subprocess.run([program], cwd=tmp_path, env=server.environment, check=True, capture_output=True)
    assert 2 <= logged.peak() <= 3
    assert server.tokens() == b"++"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_a_signal_gives_the_tokens_back_and_leaves_what_was_there(
    fresh_mlir_offload: list[str], tmp_path: Path, server: Server, number: signal.Signals
) -> None:
    events = tmp_path / "events"
    os.mkfifo(events)
    script = _STOPPED.replace("{events}", shlex.quote(str(events)))
    prefix = make_prefix(tmp_path / "llvm", {"mlir-opt": script})
    copies(tmp_path, ["a", "b"])
    (tmp_path / "a.o").write_text("old")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    compiler = subprocess.Popen(
        [*fresh_mlir_offload, f"--llvm={prefix}", HOST, "-c", "a.mlir", "b.mlir"],
        cwd=tmp_path,
        env={**server.environment, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
    )
    # Two files: one with the slot of the process, one with a token.
    started = os.open(events, os.O_RDWR)
    try:
        for _ in range(2):
            assert select.select([started], [], [], _LONGEST_S)[0], "no tool was started"
            assert os.read(started, len(_STARTED)) == _STARTED
    finally:
        os.close(started)
    compiler.send_signal(number)
    _, stderr = compiler.communicate(timeout=_LONGEST_S)
    assert (compiler.returncode, stderr) == (130, b"mlir-offload: interrupted\n")
    assert server.tokens() == b"++"
    assert (tmp_path / "a.o").read_text() == "old"
    assert not (tmp_path / "b.o").exists()
    assert list(temporary.iterdir()) == []


def test_a_failed_compile_removes_its_older_output_and_gives_the_tokens_back(
    mlir_offload: list[str], tmp_path: Path, server: Server
) -> None:
    (tmp_path / "a.mlir").write_text("func.func @f() { foo.bar }")
    (tmp_path / "a.o").write_text("old")
    command = [*mlir_offload, HOST, "-c", "-MD", "a.mlir", "-o", "a.o"]

    def run(*extra: str) -> int:
        return subprocess.run(
            [*command, *extra],
            cwd=tmp_path,
            env=server.environment,
            check=False,
            capture_output=True,
        ).returncode

    assert run("--no-such-option") == 2
    assert run("missing.mlir") == 2
    assert run("-###") == 1
    assert (tmp_path / "a.o").read_text() == "old"
    assert run() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mlir", "server"]
    assert server.tokens() == b"++"


def depfile_of(place: Path, command: Sequence[str | Path]) -> str:
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    (rule,) = place.glob("*.d")
    text = rule.read_text()
    rule.unlink()
    return text


@pytest.mark.parametrize("options", ["-MD", "-MMD", "-MMD -MP", "-MD -MP -MT x -MQ $y -MF z.d"])
def test_the_rule_of_a_c_file_is_that_of_clang(
    mlir_offload: list[str], tmp_path: Path, options: str
) -> None:
    (tmp_path / "a dir#").mkdir()
    (tmp_path / "a dir#" / "$.h").touch()
    (tmp_path / "a.c").write_text('#include <stdlib.h>\n#include "a dir#/$.h"\n')
    # The headers of the C library ask for the level.
    arguments = ["-c", "-O2", "a.c", *options.split()]
    ours = depfile_of(tmp_path, [*mlir_offload, *arguments])
    assert ours == depfile_of(tmp_path, [LLVM / "bin" / "clang", *arguments])


def test_libdevice_is_a_dependency_of_what_it_was_linked_into(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    arguments = [str(SAXPY), f"--cuda-path={CUDA}", "--offload-arch=sm_90", "-MD", "-o", "prog"]
    rule = depfile_of(tmp_path, [*mlir_offload, "-c", *arguments])
    target, *prerequisites = rule.replace("\\\n", "").split()
    assert target == "prog:"
    assert prerequisites == [str(SAXPY), str(CUDA / "nvvm/libdevice/libdevice.10.bc")]


def test_clang_and_we_write_entries_that_join_to_a_database(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "k.mlir").write_text("func.func @f() { return }")
    (tmp_path / "a.c").write_text("int a;")
    (tmp_path / "b.c").write_text("int b;")
    subprocess.run(
        [*mlir_offload, HOST, "-DX", "-c", "-MJ", "1.json", "k.mlir", "a.c"],
        cwd=tmp_path,
        check=True,
    )
    clang = LLVM / "bin" / "clang"
    subprocess.run([clang, "-DX", "-c", "-MJ", "2.json", "b.c"], cwd=tmp_path, check=True)
    script = "sed -e '1s/^/[/' -e '$s/,$/]/' *.json"
    joined = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=True)
    mlir, ours, theirs = json.loads(joined.stdout)
    # A setting of the environment is an argument too.
    given = [word for word in mlir["arguments"][1:] if not word.startswith("-march=")]
    assert given == [HOST, "-DX", "-c", "k.mlir", "-o", "k.o"]
    assert {key: type(value) for key, value in ours.items()} == {
        key: type(value) for key, value in theirs.items()
    }
    for entry in (mlir, ours):
        Path(tmp_path / entry["output"]).unlink()
        argv = [*mlir_offload, *entry["arguments"][1:]] if entry is mlir else entry["arguments"]
        subprocess.run(argv, cwd=entry["directory"], check=True)
        assert (tmp_path / entry["output"]).exists()


def test_a_link_line_of_any_length_reaches_the_linker(
    mlir_offload: list[str], tmp_path: Path
) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    folder = "/".join(["x" * 200] * 10)
    folders = " ".join(f"-L{folder}{number}" for number in range(1000))
    (tmp_path / "long.rsp").write_text(f"main.c -o 'a program' {folders}")
    subprocess.run([*mlir_offload, "@long.rsp"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "a program"], check=True)
