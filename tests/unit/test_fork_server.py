"""Fork servers: a fork behaves like the program, or the program itself is started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from mlir_offload.toolchain.fork_server import (
    MLIR_TRANSLATE,
    PROGRAM,
    SOURCE,
    ForkServers,
    can_be_forked,
    can_be_preloaded,
)
from mlir_offload.toolchain.process import Command, Completed, ProcessRunner

pytestmark = pytest.mark.llvm(22)
SHELL = "/bin/sh"
# Of a test that fails only.
_LONGEST_S = 600


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("library") / "fork_server.so"
    clang = "/usr/lib/llvm-22/bin/clang"
    warnings = ("-Wall", "-Wextra", "-Werror")
    argv = (clang, "-std=c11", *warnings, "-shared", "-fPIC", str(SOURCE), "-o", str(made))
    subprocess.run(argv, check=True)
    return made


@pytest.fixture
def loaded(library: Path) -> Iterator[ProcessRunner]:
    runner = _with_server(library)
    yield runner
    runner.close()


def _with_server(library: Path, entry: int = PROGRAM) -> ProcessRunner:
    return ProcessRunner(ForkServers(library, {SHELL: (SHELL, entry)}))


def _shell(script: str, *, cwd: Path | None = None, **changes: str) -> Command:
    return Command((SHELL, "-c", script), tuple(changes.items()), cwd)


def _parent(runner: ProcessRunner) -> int:
    """Return the process whose child a command of the runner is."""
    return int(runner.run(_shell("echo $PPID")).stdout)


@pytest.mark.parametrize(
    "script",
    [
        "echo out; echo err >&2",
        'printf \'%s|\' "$PWD" "$X" "$0"',
        "env | grep -v ^_= | sort",
        r"printf 'a\r\nb\377\n'",
        "cat",
        "sh -c 'echo inside; echo $PPID >/dev/null'",
        "printf %0100000d 1",
        "echo a >&2; exit 3",
        "echo a >&2; echo b >/dev/stderr; echo c >&2; echo d; echo e >/dev/stdout; echo f",
        "printf %0100000d 1 >&2; printf %0100000d 2; (sleep 0.1; echo late) &",
        "kill -SEGV $$",
        "trap",
        "ulimit -a",
    ],
)
def test_a_fork_does_what_the_program_does(
    script: str, loaded: ProcessRunner, tmp_path: Path
) -> None:
    command = _shell(script, cwd=tmp_path, X="1 é\n2")
    assert loaded.run(command) == ProcessRunner().run(command)


@pytest.mark.llvm(19)
@pytest.mark.parametrize("release", [19, 22])
def test_a_fork_of_mlir_opt_prints_everything(library: Path, release: int) -> None:
    # The main() of LLVM 22 writes what is left in the buffer of llvm::outs(), that of LLVM 19 does not.
    program = f"/usr/lib/llvm-{release}/bin/mlir-opt"
    command = Command((program, "--show-dialects"))
    runner = ProcessRunner(ForkServers(library, {program: (program, PROGRAM)}))
    try:
        assert runner.run(command) == ProcessRunner().run(command)
    finally:
        runner.close()


def test_a_program_is_loaded_once_and_ends_with_its_user(library: Path) -> None:
    runner = _with_server(library)
    server = _parent(runner)
    assert _parent(runner) == server != os.getpid()
    runner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_the_first_fork_loads_the_other_programs(library: Path) -> None:
    other = "/bin/cat"
    servers = ForkServers(library, {p: (p, PROGRAM) for p in (SHELL, other)})
    runner = ProcessRunner(servers)
    runner.run(_shell("true"))
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    names = {Path(f"/proc/{pid}/exe").resolve() for pid in children}
    runner.close()
    assert {Path(SHELL).resolve(), Path(other).resolve()} <= names


def test_a_fork_has_a_group_of_its_own(loaded: ProcessRunner) -> None:
    pid, group = loaded.run(_shell("echo $$; cut -d ' ' -f 5 /proc/$$/stat")).stdout.split()
    assert pid == group != str(os.getpgrp())


def test_commands_that_run_at_once_get_their_own_output(loaded: ProcessRunner) -> None:
    scripts = [
        _shell(f"read x </dev/null; echo {number}; echo {number} >&2") for number in range(60)
    ]
    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(loaded.run, scripts))
    assert [(one.stdout, one.stderr) for one in done] == [(f"{n}\n", f"{n}\n") for n in range(60)]


def _is_started(done: Completed) -> bool:
    return int(done.stdout) == os.getpid()


def test_a_failure_is_that_of_a_started_program(loaded: ProcessRunner) -> None:
    done = loaded.run(_shell("echo $PPID; exit 1"))
    assert _is_started(done)
    assert done.returncode == 1


@pytest.mark.parametrize(
    "command",
    [
        Command((SHELL, "-c", "echo $PPID"), limit_s=60),
        Command((SHELL, "-c", "echo $PPID"), (("LD_LIBRARY_PATH", "/nowhere"),)),
        Command((SHELL, "-c", "echo $PPID", *(["x" * 1000] * 300))),
        Command((SHELL, "-c", "echo $PPID", *(["x"] * 150_000))),
        Command((SHELL, "-c", "echo $PPID"), tuple((f"V{n}", "x" * 1000) for n in range(300))),
    ],
    ids=["time limit", "loader", "long", "many words", "large environment"],
)
def test_a_command_that_no_fork_can_take_is_started(
    command: Command, loaded: ProcessRunner
) -> None:
    assert not _is_started(loaded.run(_shell("echo $PPID")))
    assert _is_started(loaded.run(command))
    assert not _is_started(loaded.run(_shell("echo $PPID")))


def test_a_program_without_another_main_is_started(library: Path) -> None:
    runner = _with_server(library, MLIR_TRANSLATE)
    assert _is_started(runner.run(_shell("echo $PPID")))
    runner.close()


@pytest.mark.parametrize("content", [b"", b"no library\n", None], ids=["empty", "text", "absent"])
def test_a_library_that_cannot_be_loaded_changes_nothing(
    content: bytes | None, tmp_path: Path
) -> None:
    library = tmp_path / "broken.so"
    if content is not None:
        library.write_bytes(content)
    runner = _with_server(library)
    done = [runner.run(_shell("echo $PPID")) for _ in range(2)]
    assert all(map(_is_started, done))
    assert {one.stderr for one in done} == {""}
    runner.close()


def test_a_server_that_was_killed_changes_nothing(loaded: ProcessRunner) -> None:
    os.kill(_parent(loaded), signal.SIGKILL)
    assert _is_started(loaded.run(_shell("echo $PPID")))


def test_a_command_whose_server_is_killed_is_started_again(
    loaded: ProcessRunner, tmp_path: Path
) -> None:
    done = loaded.run(
        _shell(
            "test -e ran && echo $PPID && exit; echo $$ >ran; kill -KILL $PPID; sleep 6000",
            cwd=tmp_path,
        )
    )
    assert _is_started(done)
    deadline = time.monotonic() + _LONGEST_S
    while _is_running(int((tmp_path / "ran").read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    """Return whether a process has not ended yet; its parent may not have waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_preloaded_library_of_the_user_stays(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, own = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(
        '#include <stdlib.h>\n__attribute__((constructor)) void f(void) { setenv("OWN", "here", 1); }\n'
    )
    subprocess.run(
        ("/usr/lib/llvm-22/bin/clang", "-shared", "-fPIC", source, "-o", own), check=True
    )
    monkeypatch.setenv("LD_PRELOAD", str(own))
    runner = _with_server(library)
    assert runner.run(_shell("echo $LD_PRELOAD")).stdout == f"{own}\n"
    assert not _is_started(runner.run(_shell("echo $PPID")))
    runner.close()


def test_all_forks_are_ended_together(loaded: ProcessRunner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    found: list[BaseException] = []

    def run() -> None:
        try:
            loaded.run(
                _shell(
                    "trap 'echo ended >ended; exit 0' TERM; echo >ready; while :; do sleep 0.01; done",
                    cwd=tmp_path,
                )
            )
        except KeyboardInterrupt as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    (tmp_path / "ready").read_text()
    loaded.stop()
    thread.join()
    assert len(found) == 1
    assert (tmp_path / "ended").read_text() == "ended\n"
    with pytest.raises(KeyboardInterrupt):
        loaded.run(_shell("exit 0"))


WRAPPER = """\
#include <unistd.h>
int main(int count, char **words) {
  char *all[8] = {"/bin/sh", "-c", "echo wrapped; eval \\"$0\\"", words[count - 1]};
  return count > 1 ? execv(*all, all) : execl("/bin/sh", "sh", "-c", ":", NULL);
}
"""


def test_a_static_wrapper_is_started(library: Path, tmp_path: Path) -> None:
    source, wrapper = tmp_path / "wrapper.c", tmp_path / "wrapper"
    source.write_text(WRAPPER)
    build = ("/usr/lib/llvm-22/bin/clang", "-static", source, "-o", wrapper)
    subprocess.run(build, check=True)
    name = str(wrapper)
    # The library is loaded into what the wrapper starts, which is not the program.
    runner = ProcessRunner(ForkServers(library, {name: (name, PROGRAM)}))
    assert runner.run(Command((name, "-c", "echo here"))).stdout == "wrapped\nhere\n"
    runner.close()
    assert not can_be_forked(wrapper)


def test_words_are_spelled_as_the_file_system_does(
    loaded: ProcessRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("latin-1"))
    fork = loaded.run(_shell("printf é"))
    assert fork.stdout == "\udce9"


def test_an_answer_that_nobody_waits_for_ends_no_server(
    loaded: ProcessRunner, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    server = _parent(loaded)
    assert loaded.fork_servers is not None
    found = loaded.fork_servers.find(SHELL, dict(os.environ), lambda *_: lambda: None)
    assert found is not None
    fork = found[0].fork(PROGRAM, (SHELL, "-c", "read x <go"), dict(os.environ), tmp_path)
    assert fork is not None
    fork.close()
    ended = os.pidfd_open(fork.pid)
    (tmp_path / "go").write_text("")
    select.select((ended,), (), ())
    os.close(ended)
    assert _parent(loaded) == server


def test_scripts_and_odd_names_are_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert not can_be_forked(script)
    assert not can_be_forked(tmp_path / "absent")
    assert can_be_forked(Path(sys.executable).resolve())
    assert not any(can_be_preloaded(Path(f"/a{odd}b/x.so")) for odd in ": \t\n$")
    assert can_be_preloaded(Path("/home/é/.cache/x.so"))


SHARING = """\
import os, sys
from mlir_offload.toolchain.fork_server import SharedServers
from mlir_offload.toolchain.process import Command, ProcessRunner
from mlir_offload.toolchain.tables import decoded

runner = ProcessRunner(decoded(sys.argv[1], SharedServers).open())
print(runner.run(Command(("/bin/sh", "-c", "echo $PPID"))).stdout, end="")
runner.close()
"""


def test_processes_share_the_servers_of_one(loaded: ProcessRunner) -> None:
    shared = loaded.share_fork_servers()
    assert shared is not None
    argv = (sys.executable, "-c", SHARING, msgspec.json.encode(shared).decode())
    path = str(Path(__file__).resolve().parents[2] / ".importroot")
    others = [
        subprocess.run(
            argv,
            pass_fds=list(shared.sockets.values()),
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert {int(one.stdout) for one in others} == {_parent(loaded)}
