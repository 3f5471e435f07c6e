"""Contents that a check accepted before."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlir_offload.driver.system import accepted as accepted_contents
from mlir_offload.driver.system.accepted import folder_stamps, load_accepted
from mlir_offload.toolchain.digest import sha256

ONE, OTHER = (sha256(content).digest() for content in (b"one", b"other"))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_a_check_accepted_is_known_where_all_else_is_the_same() -> None:
    first = load_accepted("images", ("LLVM 22",))
    first.add([ONE])
    assert first.holds(ONE)
    assert not load_accepted("images", ("LLVM 22",)).holds(ONE)
    first.keep()
    again = load_accepted("images", ("LLVM 22",))
    assert again.holds(ONE)
    assert not again.holds(OTHER)
    assert not load_accepted("images", ("LLVM 19",)).holds(ONE)
    assert not load_accepted("others", ("LLVM 22",)).holds(ONE)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data[32:], lambda _: b""])
def test_a_damaged_file_knows_nothing(change: object) -> None:
    first = load_accepted("images", ())
    first.add([ONE, OTHER])
    first.keep()
    assert callable(change)
    first.file.write_bytes(change(first.file.read_bytes()))
    damaged = load_accepted("images", ())
    assert not damaged.holds(ONE)
    assert not damaged.holds(OTHER)


def test_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted_contents, "_MOST", 1)
    first = load_accepted("images", ())
    first.add([ONE, OTHER])
    first.keep()
    again = load_accepted("images", ())
    assert (again.holds(ONE), again.holds(OTHER)) == (False, True)


def test_files_that_a_check_is_made_of_have_stamps(tmp_path: Path) -> None:
    rule = tmp_path / "rules.yaml"
    rule.write_text("a")
    before = folder_stamps([tmp_path])
    assert folder_stamps([tmp_path]) == before
    rule.write_text("ab")
    assert folder_stamps([tmp_path]) != before
