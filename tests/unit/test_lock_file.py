"""Temporary files and directories, their locks, and their removal after a kill."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from mlir_offload.driver.system import workspace
from mlir_offload.driver.system.workspace import (
    locked_temporary_directory,
    locked_temporary_file,
    open_output,
    publish,
)
from mlir_offload.toolchain.errors import InputOutputError

KILLED = """\
import os, signal, sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from mlir_offload.driver.system.workspace import locked_temporary_file, locked_temporary_directory
with {what}(Path(sys.argv[1])) as place:
    held = getattr(place, "path", None) or place / "file"
    held.write_text("half of it")
    held.chmod(0o755)
    os.kill(os.getpid(), signal.{how})
"""


def end(what: str, place: Path, how: signal.Signals) -> subprocess.Popen[bytes]:
    """Let another process lock something and come to its end, or to a stop, while it holds it."""
    words = [sys.executable, "-c", KILLED.format(what=what, how=how.name), str(place)]
    child = subprocess.Popen(words)
    options = os.WSTOPPED | os.WEXITED | os.WNOWAIT
    assert os.waitid(os.P_PID, child.pid, options) is not None
    return child


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_process_began_is_begun_again(tmp_path: Path) -> None:
    output, made = tmp_path / "k.o", tmp_path / "made"
    made.write_text("all")
    end("locked_temporary_file", output, signal.SIGKILL).wait()
    left, _ = names(tmp_path)
    assert left.startswith(".k.o.mo-")
    publish(made, output)
    assert (names(tmp_path), output.read_text()) == (["k.o", "made"], "all")
    end("locked_temporary_file", output, signal.SIGKILL).wait()
    with open_output(output) as descriptor:
        os.write(descriptor, b"new")
    assert (names(tmp_path), output.read_text()) == (["k.o", "made"], "new")
    assert not os.access(output, os.X_OK)


def test_what_a_living_process_has_begun_is_left_to_it(tmp_path: Path) -> None:
    output, made = tmp_path / "k.o", tmp_path / "made"
    made.write_text("all")
    other = end("locked_temporary_file", output, signal.SIGSTOP)
    try:
        publish(made, output)
        held, *others = names(tmp_path)
        assert (tmp_path / held).read_text() == "half of it"
        assert (others, output.read_text()) == (["k.o", "made"], "all")
    finally:
        other.send_signal(signal.SIGCONT)
        assert other.wait() == 0
    assert names(tmp_path) == ["k.o", "made"]


def test_a_file_that_was_renamed_is_not_removed(tmp_path: Path) -> None:
    output = tmp_path / "k.o"
    with locked_temporary_file(output) as first:
        first.path.replace(output)
        with locked_temporary_file(output) as second:
            assert second.path != first.path
            assert output.stat().st_ino != second.path.stat().st_ino
    assert names(tmp_path) == ["k.o"]


@pytest.mark.parametrize("kind", ["link", "directory", "pipe", "another's"])
def test_what_is_no_file_of_ours_is_left_alone(kind: str, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / ".k.o.mo-0123456789ab.tmp", tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    if kind == "link":
        place.symlink_to(elsewhere)
    elif kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place = tmp_path / ".other.o.mo-0123456789ab.tmp"
        place.touch()
    with locked_temporary_file(tmp_path / "k.o") as temporary:
        os.write(temporary.descriptor, b"new")
    assert elsewhere.read_text() == "kept"
    assert names(tmp_path) == sorted([place.name, "elsewhere"])


def test_a_temporary_file_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (tmp_path / f".k.o.mo-{'0' * 12}.tmp").symlink_to(elsewhere)
    monkeypatch.setattr(workspace, "_random_word", lambda: "0" * 12)
    with pytest.raises(FileExistsError), locked_temporary_file(tmp_path / "k.o"):
        pass
    with pytest.raises(InputOutputError, match="File exists"):
        publish(elsewhere, tmp_path / "k.o")
    assert elsewhere.read_text() == "kept"


def test_an_output_may_have_the_longest_name(tmp_path: Path) -> None:
    (tmp_path / "made").write_text("all")
    output = tmp_path / ("\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 127)
    publish(tmp_path / "made", output)
    assert output.read_text() == "all"


def test_directories_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    end("locked_temporary_directory", tmp_path, signal.SIGKILL).wait()
    (left,) = names(tmp_path)
    other = end("locked_temporary_directory", tmp_path, signal.SIGSTOP)
    try:
        # The directory of another host, according to its name, must not be removed.
        foreign = tmp_path / "mlir-offload-00000000-abcdefgh"
        foreign.mkdir()
        (living,) = set(names(tmp_path)) - {left, foreign.name}
        with locked_temporary_directory(tmp_path) as own:
            assert own.name in names(tmp_path)
        assert names(tmp_path) == sorted([foreign.name, living])
        assert (tmp_path / living / "file").read_text() == "half of it"
    finally:
        other.send_signal(signal.SIGCONT)
        assert other.wait() == 0
    assert names(tmp_path) == [foreign.name]


def test_a_directory_that_is_swept_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir
    taken: list[str] = []

    def make_and_lose(path: Path, mode: int = 0o777) -> None:
        make(path, mode)
        if not taken:
            taken.append(str(path))
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", make_and_lose)
    with locked_temporary_directory(tmp_path) as place:
        assert place.is_dir()
        assert [str(place)] != taken
    assert names(tmp_path) == []


def test_without_locks_all_is_as_unique_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        locked_temporary_directory(tmp_path) as one,
        locked_temporary_directory(tmp_path) as other,
        locked_temporary_file(one / "k.o") as first,
        locked_temporary_file(one / "k.o") as second,
    ):
        assert one != other
        assert first.path.exists()
        assert first.path != second.path
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["open", "mkdir", "fstat", "flock"])
@pytest.mark.parametrize("what", [locked_temporary_file, locked_temporary_directory])
def test_a_signal_while_it_is_locked_leaves_nothing(
    what: Callable[[Path], AbstractContextManager[object]],
    call: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = fcntl if call == "flock" else os
    real = getattr(module, call)

    def interrupted(*words: object, **named: object) -> None:
        # The call completes before the signal arrives.
        real(*words, **named)
        monkeypatch.setattr(module, call, real)
        raise KeyboardInterrupt

    place = tmp_path / "k.o" if what is locked_temporary_file else tmp_path
    monkeypatch.setattr(module, call, interrupted)
    with contextlib.suppress(KeyboardInterrupt), what(place):
        pass
    assert names(tmp_path) == []


def test_a_signal_while_a_directory_is_removed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = workspace.remove_tree

    def interrupted(path: Path) -> None:
        monkeypatch.setattr(workspace, "remove_tree", real)
        (path / "file").unlink()
        raise KeyboardInterrupt

    def lock() -> None:
        with locked_temporary_directory(tmp_path) as place:
            (place / "file").touch()
            (place / "other").touch()

    monkeypatch.setattr(workspace, "remove_tree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock()
    assert names(tmp_path) == []
