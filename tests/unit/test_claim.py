"""What a process holds while it lives, and what becomes of it when it is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mlir_offload.driver.claim import claimed_beside, claimed_directory
from mlir_offload.driver.workspace import open_output, publish

KILLED = """\
import os, signal, sys
from pathlib import Path
from mlir_offload.driver.claim import claimed_beside, claimed_directory
with {what}(Path(sys.argv[1])) as place:
    held = place if place.is_file() else place / "file"
    held.write_text("half of it")
    held.chmod(0o755)
    os.kill(os.getpid(), signal.{how})
"""


def end(what: str, place: Path, how: signal.Signals) -> subprocess.Popen[bytes]:
    """Let another process claim something and come to its end, or to a stop, while it holds it."""
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
    end("claimed_beside", output, signal.SIGKILL).wait()
    assert names(tmp_path) == [".k.o.tmp", "made"]
    publish(made, output)
    assert (names(tmp_path), output.read_text()) == (["k.o", "made"], "all")
    end("claimed_beside", output, signal.SIGKILL).wait()
    with open_output(output) as descriptor:
        os.write(descriptor, b"new")
    assert (names(tmp_path), output.read_text()) == (["k.o", "made"], "new")
    assert not os.access(output, os.X_OK)


def test_what_a_living_process_has_begun_is_left_to_it(tmp_path: Path) -> None:
    output, made = tmp_path / "k.o", tmp_path / "made"
    made.write_text("all")
    other = end("claimed_beside", output, signal.SIGSTOP)
    try:
        publish(made, output)
        assert (tmp_path / ".k.o.tmp").read_text() == "half of it"
        assert (names(tmp_path), output.read_text()) == ([".k.o.tmp", "k.o", "made"], "all")
    finally:
        other.send_signal(signal.SIGCONT)
        assert other.wait() == 0
    assert names(tmp_path) == ["k.o", "made"]


def test_a_name_that_is_another_files_by_now_is_not_removed(tmp_path: Path) -> None:
    output = tmp_path / "k.o"
    with claimed_beside(output) as first:
        first.replace(output)
        with claimed_beside(output) as second:
            assert second == first
            assert output.stat().st_ino != second.stat().st_ino
    assert names(tmp_path) == ["k.o"]


@pytest.mark.parametrize("kind", ["link", "directory", "read-only"])
def test_what_is_no_file_of_ours_is_not_written(kind: str, tmp_path: Path) -> None:
    usual, elsewhere = tmp_path / ".k.o.tmp", tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    if kind == "link":
        usual.symlink_to(elsewhere)
    elif kind == "directory":
        usual.mkdir()
    else:
        usual.write_text("kept")
        usual.chmod(0o400)
    with claimed_beside(tmp_path / "k.o") as place:
        # Root may write what is read-only, and does: its holder is gone.
        assert place != usual or (kind == "read-only" and os.geteuid() == 0)
        place.write_text("new")
    assert elsewhere.read_text() == "kept"


def test_directories_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    end("claimed_directory", tmp_path, signal.SIGKILL).wait()
    (left,) = names(tmp_path)
    other = end("claimed_directory", tmp_path, signal.SIGSTOP)
    try:
        # That of another machine, as its name says, is not ours to judge.
        foreign = tmp_path / "mlir-offload-00000000-abcdefgh"
        foreign.mkdir()
        (living,) = set(names(tmp_path)) - {left, foreign.name}
        with claimed_directory(tmp_path) as own:
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
    make = tempfile.mkdtemp
    taken: list[str] = []

    def make_and_lose(prefix: str, dir: Path) -> str:  # noqa: A002 (mkdtemp's own name)
        made = make(prefix=prefix, dir=dir)
        if not taken:
            taken.append(made)
            Path(made).rmdir()
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    with claimed_directory(tmp_path) as place:
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
        claimed_directory(tmp_path) as one,
        claimed_directory(tmp_path) as other,
        claimed_beside(one / "k.o") as place,
    ):
        assert one != other
        assert str(os.getpid()) in place.name
    assert names(tmp_path) == []
