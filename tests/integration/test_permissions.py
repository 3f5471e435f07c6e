"""Users who may not read or write everything: other homes, folders and files, and read-only places."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.llvm(22)

PROGRAM = "func.func @f() { return }\n"
# Root may read and write everything, but for these capabilities.
_CAPABILITIES = "-dac_override,-dac_read_search"
BOUND = [f"--{kind}={_CAPABILITIES}" for kind in ("inh-caps", "bounding-set")]
NOTHING: Mapping[str, str] = {}


class User:
    """One who has a directory, and calls the driver in it without rights of root."""

    def __init__(self, command: list[str], place: Path) -> None:
        self.command = [*(["setpriv", *BOUND] if os.geteuid() == 0 else []), *command]
        self.place = place
        (place / "p.mlir").write_text(PROGRAM)

    def call(self, *words: str, status: int, environment: Mapping[str, str] = NOTHING) -> str:
        done = subprocess.run(
            [*self.command, *words],
            cwd=self.place,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stderr

    def closed(self, name: str) -> Path:
        path = self.place / name
        path.mkdir()
        path.chmod(0)
        return path


@pytest.fixture
def user(fresh_mlir_offload: list[str], tmp_path: Path) -> User:
    return User(fresh_mlir_offload, tmp_path)


def test_a_home_that_cannot_be_searched_has_no_settings(user: User) -> None:
    home = {"HOME": str(user.closed("home")), "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": ""}

    assert user.call("-fsyntax-only", "p.mlir", status=0, environment=home) == ""


@pytest.mark.parametrize("words", [("-c",), ("inspect",), ("check",), ("extract",)])
def test_a_file_that_may_not_be_read_is_an_error_of_reading(
    user: User, words: tuple[str, ...]
) -> None:
    (user.place / "p.mlir").chmod(0)
    error = user.call(*words, "p.mlir", status=7)

    assert "p.mlir: Permission denied\n  hint: check " in error
    assert "permissions" in error


def test_a_project_is_not_begun_where_nothing_can_be_written(user: User) -> None:
    user.closed("closed")
    error = user.call("new", "closed/project", status=7)

    assert "Permission denied\n  hint: name a directory in one that can be written" in error


def test_a_cache_that_cannot_be_written_is_named(user: User) -> None:
    closed = {"CCACHE_DIR": str(user.closed("closed"))}
    words = ("--cache", "-c", "p.mlir", "--offload-arch=host")
    error = user.call(*words, status=5, environment=closed)

    assert "Permission denied" in error
    assert "hint: look at ccache's setting, such as CCACHE_DIR" in error
    user.call(*words, "--no-cache", "--launcher=", status=0, environment=closed)
