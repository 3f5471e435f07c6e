"""Kills, full disks, rivals, other tools and wrong clocks: the next build is right all the same."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.project import digests, open_once_read, run_in, write_project
from support.stress import FACTOR, rounds

from mlir_offload.toolchain.llvm import find_llvm_library

pytestmark = pytest.mark.llvm(22)
KILLS = 4
# In `make stress`: up to this long behind a step's begin.
LATER_S = 0.1
LLVM = Path("/usr/lib/llvm-22/bin")
MANIFEST = """\
archs: host
flags: --llvm=22
modules: [m0.mlir]
targets:
  app: {inputs: [m0.mlir, main.c]}
"""
STEPS = 5
ENDINGS = (".o", ".images", ".host", ".device", "app")
COMPILE = ("-c", "--llvm=22", "--offload-arch=host", "m0.mlir", "-o", "out/m0.o")
LONGEST_S = 600


@dataclass(frozen=True)
class Reference:
    """What undisturbed builds make, and how many lines -v prints of them."""

    folder: Path
    built: dict[str, str]
    compiled: dict[str, str]
    build_lines: int
    compile_lines: int


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, mlir_offload: list[str]) -> Reference:
    folder = write_project(tmp_path_factory.mktemp("reference"), MANIFEST, modules=1)
    (folder / "out").mkdir()
    lines = []
    for command in (("build", "-v"), (*COMPILE, "-v")):
        done = run_in(folder, [*mlir_offload, *command])
        assert done.returncode == 0, done.stderr
        lines.append(done.stderr.count("\n"))
    return Reference(folder, outputs(folder / "build"), outputs(folder / "out"), *lines)


@pytest.fixture
def copy(reference: Reference, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference.folder, tmp_path / "copy"))


def outputs(folder: Path) -> dict[str, str]:
    """Return the hash of each file that has an output's name."""
    found = digests(folder, *ENDINGS)
    return {name: digest for name, digest in found.items() if not Path(name).name.startswith(".")}


def kill_session(leader: int) -> None:
    """Kill a process with all that it has started, whatever group they are in."""
    deadline = time.monotonic() + LONGEST_S
    while members := session_members(leader):
        assert time.monotonic() < deadline, members
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)


def session_members(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    members.append(int(entry.name))
    return members


@contextlib.contextmanager
def killed_behind(
    line: int, later_s: float, folder: Path, command: list[str], *, alone: bool
) -> Iterator[None]:
    """Start a build that prints its steps, and kill it behind one of the lines.

    What it started may go on inside, and has ended behind.
    """
    child = subprocess.Popen(
        [*command, "-v"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stderr is not None
    with child.stderr as printed:
        for _ in range(line):
            printed.readline()
        time.sleep(later_s)
        if alone:
            child.kill()
        else:
            kill_session(child.pid)
        assert child.wait(timeout=LONGEST_S) in {0, -signal.SIGKILL}
        yield
        printed.read()


@pytest.mark.soak
@pytest.mark.parametrize("number", rounds(KILLS))
def test_after_a_build_was_killed_the_next_is_right(
    number: int, reference: Reference, tmp_path: Path, mlir_offload: list[str]
) -> None:
    point = random.Random(number)  # noqa: S311 (no secret)
    is_compile, alone = number % 2 == 1, number % 4 >= 2
    folder = write_project(tmp_path / "project", MANIFEST, modules=1)
    (folder / "out").mkdir()
    command = [*mlir_offload, *(COMPILE if is_compile else ("build", "-j2"))]
    place = folder / ("out" if is_compile else "build")
    expected = reference.compiled if is_compile else reference.built
    lines = reference.compile_lines if is_compile else reference.build_lines
    later_s = point.uniform(0, LATER_S) if FACTOR > 1 else 0.0
    with killed_behind(point.randint(0, lines), later_s, folder, command, alone=alone):
        # A file that has an output's name is that output, whole.
        assert outputs(place).items() <= expected.items()
        done = run_in(folder, command)
    assert done.returncode == 0, done.stderr
    assert outputs(place) == expected


def test_a_build_waits_for_the_steps_that_a_killed_one_left(
    copy: Path, tmp_path: Path, mlir_offload: list[str], reference: Reference
) -> None:
    shutil.rmtree(copy / "build")
    pipe, launcher = tmp_path / "pipe", tmp_path / "launcher"
    os.mkfifo(pipe)
    launcher.write_text(f"#!/bin/sh\nread line <'{pipe}'\nexec \"$@\"\n")
    launcher.chmod(0o755)
    first = subprocess.Popen(
        [*mlir_offload, "build", "-j1"],
        cwd=copy,
        env={**os.environ, "MLIR_OFFLOAD_LAUNCHER": str(launcher)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    second = None
    try:
        gate = open_once_read(pipe)
        first.kill()
        first.wait(timeout=LONGEST_S)
        second = subprocess.Popen(
            [*mlir_offload, "build"], cwd=copy, stderr=subprocess.PIPE, text=True
        )
        assert second.stderr is not None
        assert select.select([second.stderr], [], [], LONGEST_S)[0]
        assert "waiting for another build in" in second.stderr.readline()
        kill_session(first.pid)
        os.close(gate)
        _, said = second.communicate(timeout=LONGEST_S)
    finally:
        kill_session(first.pid)
        if second is not None:
            second.kill()
    assert second.returncode == 0, said
    assert outputs(copy / "build") == reference.built


def test_where_the_disk_is_full_no_output_is_cut(
    copy: Path, mlir_offload: list[str], reference: Reference
) -> None:
    module = copy / "m0.mlir"
    text = module.read_text()
    module.write_text(text.replace('"%d', '"%x'))
    # Files may grow to so many bytes: our own cannot be written, then those of a tool.
    for most_bytes in (400, 4096):
        for command in (("build",), COMPILE):
            done = run_limited(copy, [*mlir_offload, *command], most_bytes)
            assert done.returncode == 7, done.stderr
            assert re.search(r"could not write|cannot write|File too large", done.stderr)
            assert "hint: " in done.stderr
            assert "Traceback" not in done.stderr
    # A step before the one that failed may have made its output of the new text.
    for name, digest in outputs(copy / "build").items():
        assert digest == reference.built[name] or name.endswith((".host", ".device"))
    assert outputs(copy / "out") == {}
    module.write_text(text)
    for command in (("build",), COMPILE):
        done = run_in(copy, [*mlir_offload, *command])
        assert done.returncode == 0, done.stderr
    assert outputs(copy / "build") == reference.built
    assert outputs(copy / "out") == reference.compiled


def run_limited(
    folder: Path, command: list[str], most_bytes: int
) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    # Python would keep the first bytes of a module that it compiles.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )


def test_of_two_builds_in_one_directory_one_works(
    copy: Path, mlir_offload: list[str], reference: Reference
) -> None:
    shutil.rmtree(copy / "build")
    command = [*mlir_offload, "build", "-j1"]
    both = [
        subprocess.Popen(command, cwd=copy, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [child.communicate(timeout=LONGEST_S)[1] for child in both]
    assert [child.returncode for child in both] == [0, 0], said
    counts = sorted(
        int(count) for text in said for count in re.findall(r"(\d+) steps? built", text)
    )
    assert counts == [0, STEPS]
    assert outputs(copy / "build") == reference.built


def test_a_tool_that_is_replaced_ends_the_build(
    copy: Path,
    tmp_path: Path,
    mlir_offload: list[str],
    reference: Reference,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.rmtree(copy / "build")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tools, other = tmp_path / "llvm" / "bin", tmp_path / "other"
    tools.mkdir(parents=True)
    for tool in LLVM.iterdir():
        (tools / tool.name).symlink_to(tool)
    library = find_llvm_library(LLVM.parent, 22)
    assert library is not None
    (tools.parent / "lib").mkdir()
    (tools.parent / "lib" / library.name).symlink_to(library)
    other.write_text(f'#!/bin/sh\n# Another one.\nexec {LLVM}/clang "$@"\n')
    other.chmod(0o755)
    launcher = tmp_path / "launcher"
    # In the second module, behind the last look that a step takes at its tools: only the build can tell.
    launcher.write_text(
        f"""#!/bin/sh
"$@" || exit
case " $* " in *" --object-step "*)
  mkdir '{tmp_path}/first' 2>/dev/null || mv '{other}' '{tools}/clang';; esac
"""
    )
    (copy / "m1.mlir").write_text((copy / "m0.mlir").read_text().replace("run0", "run1"))
    launcher.chmod(0o755)
    manifest = copy / "offload.yaml"
    text = MANIFEST.replace("--llvm=22", f"--llvm={tools.parent}")
    manifest.write_text(text.replace("modules: [m0.mlir]", "modules: [m0.mlir, m1.mlir]"))
    run_in(copy, [*mlir_offload, "trust"])
    command = [*mlir_offload, "build", "-j1"]
    done = run_in(copy, command, {"MLIR_OFFLOAD_LAUNCHER": str(launcher)})
    assert done.returncode == 4, done.stderr
    assert f"{tools}/clang was replaced during the build" in done.stderr
    assert not (copy / "build" / "default" / "bin" / "app").exists()
    failed = shutil.copytree(copy / "build", tmp_path / "failed")
    for is_put_back in (False, True):
        if is_put_back:
            shutil.rmtree(copy / "build")
            failed.rename(copy / "build")
            (tools / "clang").unlink()
            (tools / "clang").symlink_to(LLVM / "clang")
        done = run_in(copy, command)
        assert done.returncode == 0, done.stderr
        kept = re.search(r"(\d+) steps? built, (\d+) current", done.stderr)
        assert kept is not None
        # What the tools made before is right again; the step during which one changed is not.
        assert (int(kept[2]) > 0) == is_put_back
        assert int(kept[1]) >= 2
    made = {name: file for name, file in outputs(copy / "build").items() if "m1.mlir" not in name}
    # A program contains the path of LLVM's libraries.
    assert made.pop("default/bin/app")
    assert made.items() <= reference.built.items()
    assert run_in(copy, [copy / "build/default/bin/app"]).stdout == "0\n0\n"


def test_times_of_files_do_not_deceive_a_build(
    copy: Path, mlir_offload: list[str], reference: Reference
) -> None:
    module = copy / "m0.mlir"
    text, past, future = module.read_text(), 631_152_000, 4_070_908_800
    for path in (copy / "build").rglob("*"):
        os.utime(path, (future, future))
    module.write_text(text.replace('"%d', '"%x'))
    os.utime(module, (past, past))
    done = run_in(copy, [*mlir_offload, "build"])
    assert done.returncode == 0, done.stderr
    assert outputs(copy / "build") != reference.built
    module.write_text(text)
    os.utime(module, (past, past))
    done = run_in(copy, [*mlir_offload, "build"])
    assert done.returncode == 0, done.stderr
    assert outputs(copy / "build") == reference.built


def test_what_a_killed_compilation_left_goes_with_the_next(
    copy: Path, tmp_path: Path, mlir_offload: list[str]
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    os.mkfifo(copy / "gate.h")
    (copy / "gate.c").write_text('#include "gate.h"\n')
    command = [*mlir_offload, "-c", "--llvm=22", "gate.c", "-o", "out/gate.o"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    waiting = [
        subprocess.Popen(
            command, cwd=copy, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    killed, living = waiting
    try:
        gate = open_once_read(copy / "gate.h")
        while len(list(temporary.iterdir())) < len(waiting):
            assert [child.poll() for child in waiting] == [None, None]
            time.sleep(0.05)
        kill_session(killed.pid)
        killed.wait(timeout=LONGEST_S)
        done = run_in(copy, [*mlir_offload, *COMPILE], {"TMPDIR": str(temporary)})
        assert done.returncode == 0, done.stderr
        assert len(list(temporary.iterdir())) == 1
        # Whoever has not come to the gate yet finds it open.
        (copy / "gate.h").unlink()
        (copy / "gate.h").touch()
        os.close(gate)
        assert living.wait(timeout=LONGEST_S) == 0
    finally:
        for child in waiting:
            kill_session(child.pid)
    assert list(temporary.iterdir()) == []
