"""Steps of a project on the workers of a real server: BuildGrid, with the sandboxes of BuildStream."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.loopback import Server, attempts, free_port
from support.project import digests, run_in, write_project
from support.remote_server import INSTANCE, PROPERTY, BuildGrid, build_grid, write_command

pytestmark = pytest.mark.llvm(22)
MANIFEST = """\
archs: sm_90
flags: --llvm=22
modules: ['m*.mlir']
"""
TARGET = "targets: {app: {inputs: ['m*.mlir', main.c]}}\n"
HANGS = "#!/bin/sh\nexec sleep 600\n"
DOES_NOTHING = "#!/bin/sh\nexit 0\n"
IS_NO_PROGRAM = "#!/not/there\n"
# In bytes; a message has four million.
LARGE = 4_200_000
# Much longer than a process needs to end, and much less than it would sleep.
LONGEST_S = 120
ENDINGS = (".o", ".host", ".device", ".images", "app")


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildGrid]:
    with build_grid(tmp_path_factory.mktemp("grid")) as grid:
        yield grid


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_command(tmp_path_factory.mktemp("command") / "mlir-offload")


def script(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file


def options(grid: BuildGrid, toolchain: str = "") -> tuple[str, ...]:
    """Return the options of a client; a toolchain chooses the workers of one test.

    The server does not notice for some seconds that the workers of another test have ended.
    """
    chosen = (f"--remote-platform={PROPERTY}={toolchain}",) if toolchain else ()
    return (*grid.tls_options, f"--remote-token={grid.token}", *chosen)


def of(toolchain: str) -> str:
    return f"{PROPERTY}={toolchain}"


def print_another(project: Path, text: str) -> None:
    """Change a module, so that no test finds the results of another one."""
    file = project / "m0.mlir"
    file.write_text(file.read_text().replace('"%d', f'"{text} %d'))


def said_without_times(done: subprocess.CompletedProcess[str]) -> str:
    return re.sub(r" in [0-9.]+ s", "", done.stderr)


def wait_until(server: Server, text: str) -> None:
    for _ in attempts(server):
        if text in server.said():
            return


def wait_for_sandbox(file: Path, *, there: bool) -> None:
    """Return when a sandbox with this file runs, or none does; what has ended has no command line."""
    deadline = time.monotonic() + LONGEST_S
    # Other workers of pytest may have a sandbox for a file of this name.
    place = re.escape(os.fsencode(file.parents[1]))
    sandbox = re.compile(place + rb"/\S*/" + os.fsencode(file.name) + rb"-\w+:/usr/local/bin")
    while there != any(sandbox.search(line) for line in command_lines()):
        assert time.monotonic() < deadline, f"a sandbox with {file}: {not there}"
        time.sleep(0.02)


def command_lines() -> Iterator[bytes]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (folder / "cmdline").read_bytes()


@contextlib.contextmanager
def building(folder: Path, words: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as build:
        try:
            yield build
        finally:
            build.kill()


def test_two_workers_make_what_this_machine_makes_and_then_nobody_compiles(
    tmp_path: Path, grid: BuildGrid, command: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "here", MANIFEST + TARGET, modules=3)
    for name in ("first", "second"):
        shutil.copytree(project, tmp_path / name)
    words = [*mlir_offload, "build"]
    done = run_in(project, words)
    assert done.returncode == 0, done.stderr
    words = [*words, *options(grid, "same")]
    with (
        grid.worker("one", command, of("same")) as one,
        grid.worker("two", command, of("same")) as two,
    ):
        for worker in (one, two):
            wait_until(worker, "waits")
        done = run_in(tmp_path / "first", words)
        assert done.returncode == 0, done.stderr + one.said() + two.said()
        assert one.said().count("runs ") + two.said().count("runs ") == 9
        assert min(one.said().count("runs "), two.said().count("runs ")) > 0
    # No worker is left that could compile anything.
    done = run_in(tmp_path / "second", words)
    assert done.returncode == 0, done.stderr
    made = digests(project / "build", *ENDINGS)
    assert len(made) == 3 * 4 + 2
    assert digests(tmp_path / "first" / "build", *ENDINGS) == made
    assert digests(tmp_path / "second" / "build", *ENDINGS) == made


def test_a_killed_worker_and_a_restarted_server_cost_time_alone(
    tmp_path: Path, grid: BuildGrid, command: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, 1)
    hangs = script(tmp_path / "hangs", HANGS)
    with contextlib.ExitStack() as stack:
        with grid.worker("killed", hangs, of("lives")) as worker:
            words = [*mlir_offload, "build", *options(grid, "lives")]
            build = stack.enter_context(building(project, words))
            wait_until(worker, "runs ")
            wait_for_sandbox(hangs, there=True)
        wait_for_sandbox(hangs, there=False)
        grid.stop()
        grid.start()
        with grid.worker("good", command, of("lives")):
            _, said = build.communicate(timeout=600)
    assert build.returncode == 0, said
    assert (project / "build/default/m0.mlir.o").is_file()


def test_whole_modules_with_files_too_large_for_a_message_are_made_again_where_the_server_lost_them(
    tmp_path: Path, grid: BuildGrid, command: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, 1)
    module = project / "m0.mlir"
    # The object is large by a table, and the program by a comment, which no tool has to print again.
    table = f"memref.global @table : memref<{LARGE}xi8> = dense<90>"
    module.write_text(f"{module.read_text()}\n{table}\n// {'x' * LARGE}\n")
    here, again = (shutil.copytree(project, tmp_path / name) for name in ("here", "again"))
    words = [*mlir_offload, "build"]
    assert run_in(here, words).returncode == 0
    assert (here / "build" / "default" / "m0.mlir.o").stat().st_size > LARGE
    made = digests(here / "build", *ENDINGS)
    # With as many modules as lanes a worker does all steps of a module at once.
    words = [*words, "-j1", *options(grid, "large")]
    with grid.worker("one", command, of("large")) as worker:
        for place, actions in ((project, 1), (again, 2)):
            done = run_in(place, words)
            assert done.returncode == 0, done.stderr + worker.said()
            assert digests(place / "build", *ENDINGS) == made
            assert worker.said().count("runs ") == actions
            for file in filter(Path.is_file, grid.storage.rglob("*")):
                file.unlink()


def test_a_worker_with_other_tools_is_refused_and_a_property_avoids_it(
    tmp_path: Path, grid: BuildGrid, command: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST.replace("flags: --llvm=22\n", ""), 1)
    print_another(project, "tools")
    other = write_command(tmp_path / "other", MLIR_OFFLOAD_LLVM="19")
    identity = run_in(project, [*mlir_offload, "--toolchain-id"]).stdout.strip()
    words = [*mlir_offload, "build"]
    with grid.worker("llvm-19", other, of("another")):
        done = run_in(project, [*words, *options(grid, "another")])
        assert done.returncode == 4
        assert "the tools here are not those of the build" in done.stderr
        assert "it fails on llvm-19, and not here" in done.stderr
        assert "hint: give the workers the tools of this machine" in done.stderr
        with grid.worker("llvm-22", command, of(identity)):
            done = run_in(project, [*words, *options(grid, identity)])
    assert done.returncode == 0, done.stderr


def test_what_is_wrong_in_a_program_is_told_as_here(
    tmp_path: Path, grid: BuildGrid, command: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, modules=2)
    (project / "m0.mlir").write_text("func.func @f() { return 1 }\n")
    # What ptxas and its like refuse is known in a device step, which does not have the program.
    text = (project / "m1.mlir").read_text()
    (project / "m1.mlir").write_text(
        text.replace(
            "gpu.terminator",
            'llvm.inline_asm has_side_effects "nonsense;", "" : () -> ()\n    gpu.terminator',
        )
    )
    words = [*mlir_offload, "build", "-k", "-j1"]
    here = run_in(project, words)
    assert here.returncode
    with grid.worker("one", command, of("errors")):
        there = run_in(project, [*words, *options(grid, "errors")])
    assert there.returncode == here.returncode
    for line in said_without_times(here).splitlines():
        if not line.startswith("mlir-offload:"):
            assert line in there.stderr


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        pytest.param(
            DOES_NOTHING, 6, "broken did not write build/default/m0.mlir.device", id="no output"
        ),
        pytest.param(IS_NO_PROGRAM, 1, "it fails on broken, and not here", id="no program"),
    ],
)
def test_a_worker_that_does_not_do_its_work_is_named(
    tmp_path: Path, grid: BuildGrid, mlir_offload: list[str], text: str, status: int, reason: str
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, 1)
    print_another(project, reason)
    with grid.worker("broken", script(tmp_path / "broken", text), of(str(status))):
        done = run_in(project, [*mlir_offload, "build", *options(grid, str(status))])
    assert done.returncode == status, done.stderr
    assert reason in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_build_cancels_what_workers_do(
    tmp_path: Path, grid: BuildGrid, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, 1)
    print_another(project, "cancel")
    with grid.worker("one", script(tmp_path / "hangs", HANGS), of("stopped")) as worker:
        words = [*mlir_offload, "build", *options(grid, "stopped")]
        with building(project, words) as build:
            wait_until(worker, "runs ")
            build.send_signal(signal.SIGINT)
            _, said = build.communicate(timeout=600)
        assert build.returncode == 130, said
        assert "Traceback" not in said
        wait_until(worker, "cancelled ")


def test_a_server_that_refuses_says_why(
    tmp_path: Path, grid: BuildGrid, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, 1)
    secure, ca, certificate, key = grid.tls_options
    token = f"--remote-token={grid.token}"
    wrong = tmp_path / "token"
    wrong.write_text("not-a-token\n")
    cases = {
        (secure.replace(INSTANCE, "other"), ca, certificate, key, token): (
            2,
            "no instance 'other'",
        ),
        (secure, ca, certificate, key): (2, "a client without a token"),
        (secure, ca, certificate, key, f"--remote-token={wrong}"): (2, "does not accept the token"),
        (secure, ca, token): (5, "cannot reach the server"),
        (secure, certificate, key, token): (5, "--remote-ca="),
        (secure, ca, certificate, token): (2, "a certificate and its key belong together"),
    }
    for words, (status, reason) in cases.items():
        done = run_in(project, [*mlir_offload, "build", *words])
        assert done.returncode == status, done.stderr
        assert reason in done.stderr
        assert "hint: " in done.stderr
        assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_is_named(tmp_path: Path, mlir_offload: list[str]) -> None:
    project = write_project(tmp_path / "project", MANIFEST, 1)
    url = f"grpc://127.0.0.1:{free_port()}/{INSTANCE}"
    done = run_in(project, [*mlir_offload, "build", f"--remote={url}"])
    assert done.returncode == 5
    assert f"{url}: error: cannot reach the server" in done.stderr
    assert "hint: is it running" in done.stderr


def test_without_the_packages_the_command_to_install_them_is_shown(
    tmp_path: Path, mlir_offload: list[str]
) -> None:
    project = write_project(tmp_path / "project", MANIFEST, 1)
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "grpc.py").write_text("raise ImportError('grpc is hidden')\n")
    path = f"{tmp_path / 'hiding'}:{os.environ['PYTHONPATH']}"
    words = [*mlir_offload, "build", "--remote=grpc://127.0.0.1:1"]
    done = run_in(project, words, {"PYTHONPATH": path})
    assert done.returncode == 3
    assert "pip install 'mlir-offload[remote]'" in done.stderr
