"""Results of other builds: taken only if nothing differs and nothing is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.project import digests, run_in, write_project

pytestmark = pytest.mark.llvm(22)
MANIFEST = """\
archs: sm_90
flags: --llvm=22 --device-code=bitcode
modules: [m0.mlir]
"""
# Each writes its name: what is in the store starts none.
LAUNCHER = """\
#!/bin/sh
echo "$*" >>'{log}'
exec "$@"
"""


def build(
    folder: Path, store: Path, command: list[str], modules: int = 1
) -> tuple[int, dict[str, str]]:
    """Build in a new directory; return how many processes were started, and the files."""
    log, launcher = folder.with_suffix(".log"), folder.with_suffix(".launcher")
    shutil.rmtree(folder, ignore_errors=True)
    log.write_text("")
    launcher.write_text(LAUNCHER.format(log=log))
    launcher.chmod(0o755)
    write_project(folder, MANIFEST, modules)
    done = run_in(folder, [*command, "build", "-j1", f"--store={store}", f"--launcher={launcher}"])
    assert done.returncode == 0, done.stderr
    return len(log.read_text().splitlines()), digests(folder / "build", ".o", ".images", ".device")


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_damaged_result_is_made_again(tmp_path: Path, mlir_offload: list[str]) -> None:
    store = tmp_path / "store"
    made, expected = build(tmp_path / "first", store, mlir_offload)
    assert made > 0
    assert build(tmp_path / "second", store, mlir_offload) == (0, expected)
    for folder in ("files", "results"):
        for file in (store / folder).rglob("*"):
            if file.is_file():
                damage(file)
        assert build(tmp_path / "third", store, mlir_offload) == (made, expected)
        assert build(tmp_path / "fourth", store, mlir_offload) == (0, expected)
