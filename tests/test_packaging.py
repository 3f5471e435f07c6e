"""What the wheel holds is what the folders hold."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("driver", "translate", "offload", "toolchain")
SHIPPED = {".py", ".yaml", ".json", ".html", ".css", ".js", ".c", ".h", ".ll", ".sh", ".typed"}
NOT_SHIPPED = {Path("toolchain/setup.sh")}


def _files_of_the_tree() -> set[str]:
    paths = (
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix in SHIPPED
    )
    return {f"mlir_offload/{path}" for path in paths if path not in NOT_SHIPPED}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source") / "tree"
    # A copy, so that an old build/ folder cannot add files and none is left behind.
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            out,
            source,
        ],
        check=True,
        capture_output=True,
    )
    return next(out.glob("*.whl"))


def test_the_wheel_holds_every_module_table_and_runtime_source(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == _files_of_the_tree()


def test_the_wheel_installs_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entry_points = next(
            name for name in archive.namelist() if name.endswith("entry_points.txt")
        )
        assert "mlir-offload = mlir_offload.driver.cli:main" in archive.read(entry_points).decode()
