from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from mlir_offload.driver.system.workspace import check_output, open_output, open_workspace, publish
from mlir_offload.toolchain.errors import InputOutputError


def test_the_workspace_is_removed_even_after_an_error() -> None:
    places: list[Path] = []

    def work() -> None:
        with open_workspace() as place:
            places.append(place)
            (place / "file").write_text("x")
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        work()
    assert not places[0].exists()


def test_of_links_in_a_workspace_only_the_link_is_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    with open_workspace(parent=tmp_path) as place:
        (place / "a" / "b").mkdir(parents=True)
        (place / "a" / "b" / "file").write_text("x")
        (place / "a" / "directory").symlink_to(kept)
        (place / "a" / "file").symlink_to(kept / "file")
        (place / "a" / "nowhere").symlink_to("nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "x"


def test_a_workspace_that_the_user_named_is_kept(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "kept" / "here") as place:
        (place / "file").write_text("x")
    assert (tmp_path / "kept" / "here" / "file").exists()


def test_a_result_replaces_the_old_one_whole_with_its_mode(tmp_path: Path) -> None:
    made, output = tmp_path / "made", tmp_path / "output"
    made.write_text("new")
    made.chmod(0o755)
    output.write_text("old")
    publish(made, output)
    assert output.read_text() == "new"
    assert os.access(output, os.X_OK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "output"]


@pytest.mark.parametrize(
    ("old", "made", "new"),
    [
        (0o600, 0o644, 0o600),
        (0o640, 0o755, 0o750),
        (0o755, 0o644, 0o755),
        (0o444, 0o644, 0o444),
        (0o4755, 0o755, 0o755),
    ],
)
def test_an_output_that_is_there_keeps_its_mode(
    old: int, made: int, new: int, tmp_path: Path
) -> None:
    output, finished = tmp_path / "output", tmp_path / "made"
    for path, mode in ((output, old), (finished, made)):
        path.write_text(path.name)
        path.chmod(mode)
    publish(finished, output)
    assert (output.read_text(), output.stat().st_mode & 0o7777) == ("made", new)
    output.chmod(old)
    with open_output(output) as descriptor:
        os.write(descriptor, b"text")
    assert output.stat().st_mode & 0o7777 == old & 0o777


def test_a_pipe_takes_an_output(tmp_path: Path) -> None:
    pipe, made = tmp_path / "pipe", tmp_path / "made"
    os.mkfifo(pipe)
    made.write_text("new")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        publish(made, pipe)
        assert os.read(reader, 9) == b"new"
        with open_output(pipe) as descriptor:
            os.write(descriptor, b"text")
        assert os.read(reader, 9) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_device_takes_the_bytes_and_stays_a_device(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_text("new")
    publish(made, Path(os.devnull))
    assert Path(os.devnull).is_char_device()
    with pytest.raises(InputOutputError, match="No space left on device") as error:
        publish(made, Path("/dev/full"))
    assert "free some space" in error.value.hint


def test_only_a_full_disk_asks_for_space(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_text("new")
    with pytest.raises(InputOutputError, match="No such file") as error:
        publish(made, Path("/proc/output"))
    assert error.value.hint == "choose another place with -o"


@pytest.mark.parametrize(
    ("name", "reason"), [(".", "it is a directory"), ("absent/file", "there is no directory")]
)
def test_an_output_that_cannot_be_is_refused_before_any_work(
    tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(InputOutputError, match=reason):
        check_output(tmp_path / name)


def test_an_output_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with open_output(output) as descriptor:
        os.write(descriptor, b"whole")
        assert not output.exists()
    assert output.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [output]


def test_an_output_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_bytes(b"before")

    def write() -> None:
        with open_output(output) as descriptor:
            os.write(descriptor, b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert output.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [output]


def test_a_device_takes_the_output_as_it_comes() -> None:
    with open_output(Path(os.devnull)) as descriptor:
        assert os.write(descriptor, b"bytes") == 5
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_device_needs_no_directory_that_can_be_written(
    is_ours: bool,  # noqa: FBT001 (a parameter of the test)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Simulates the permissions of every user but root.
    monkeypatch.setattr(os, "access", lambda path, _: is_ours and path == Path(os.devnull))
    refusal = contextlib.nullcontext() if is_ours else pytest.raises(InputOutputError)
    with refusal:
        check_output(Path(os.devnull))
