"""What the wheel holds is what the folders hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mlir_offload.driver import __version__

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("driver", "translate", "offload", "toolchain")
SHIPPED = {
    *(".py", ".yaml", ".json", ".html", ".css", ".js", ".c", ".h", ".ll", ".sh", ".typed"),
    *(".cmake", ".in", ".mlir", ".pc"),
}
EPOCH = "1000000000"
LOCK = ROOT / "tests" / "requirements.txt"
LOCKED = re.compile(r"([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")
NOT_SHIPPED = {Path("toolchain/setup.sh")}


def _files_of_the_tree() -> set[str]:
    paths = (
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and (path.suffix in SHIPPED or path.parent.name == "new")
    )
    names = {f"mlir_offload/{path}" for path in paths if path not in NOT_SHIPPED}
    # What `import mlir_offload` gives.
    return {name.replace("mlir_offload/driver/root/", "mlir_offload/") for name in names}


def _copy_of_the_tree(source: Path) -> Path:
    """Copy the files that git knows, so that an old build/ folder cannot add any."""
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
    return source


def _build(source: Path, output: Path) -> Path:
    options = ("--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", str(output))
    subprocess.run(
        [sys.executable, "-m", "build", *options],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        umask=0o022,
        check=True,
        capture_output=True,
    )
    return next(output.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = _copy_of_the_tree(tmp_path_factory.mktemp("source") / "tree")
    return _build(source, tmp_path_factory.mktemp("wheel"))


def test_two_builds_make_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    source = _copy_of_the_tree(tmp_path / "another" / "place")
    again = _build(source, tmp_path / "wheel")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(again) as archive:
        assert {info.date_time for info in archive.infolist()} == {(2001, 9, 9, 1, 46, 40)}


def _requirements() -> dict[str, list[Requirement]]:
    """Return what the project requires for its tests, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found: dict[str, list[Requirement]] = {}
    for text in (*project["dependencies"], *extras["cuda"], *extras["dev"]):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def test_the_lock_file_holds_a_version_and_a_hash_of_each_requirement() -> None:
    rows = LOCK.read_text(encoding="utf-8").splitlines()[1:]
    locked = {match[1]: match[2] for row in rows if (match := LOCKED.fullmatch(row))}
    assert len(locked) == len(rows), "a row without its hash"
    for name, requirements in _requirements().items():
        for requirement in requirements:
            assert requirement.specifier.contains(locked[name]), f"run tests/lock.py: {requirement}"


def test_the_wheel_holds_every_module_table_and_runtime_source(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    held = {name for name in names if ".dist-info/" not in name and ".data/" not in name}
    assert held == _files_of_the_tree()


def test_cmake_finds_the_package_of_an_installed_wheel_by_path(wheel: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--ignore-installed",
        "--prefix",
        prefix,
        wheel,
    )
    subprocess.run(pip, check=True, capture_output=True)
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.25)\n"
        f"find_package(MLIROffload {__version__} EXACT REQUIRED)\n"
        f"project(found LANGUAGES NONE)\n"
        f'message(STATUS "modules: ${{CMAKE_MODULE_PATH}}")\n'
        f"get_target_property(headers MLIROffload::headers INTERFACE_INCLUDE_DIRECTORIES)\n"
        f'message(STATUS "headers: ${{headers}}")\n',
        encoding="utf-8",
    )
    site = next(prefix.glob("lib*/python*/site-packages"))
    path = f"{prefix / 'bin'}:{os.environ['PATH']}"
    others = {name: value for name, value in os.environ.items() if name != "MLIROffload_DIR"}
    configured = subprocess.run(
        (Path(sys.executable).with_name("cmake"), "-S", tmp_path, "-B", tmp_path / "build"),
        env={**others, "PATH": path, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = dict(re.findall(r"^-- (modules|headers): (.*)$", configured.stdout, re.MULTILINE))
    assert (Path(said["modules"]) / "CMakeMLIRInformation.cmake").is_relative_to(site)
    assert (Path(said["modules"]) / "CMakeMLIRInformation.cmake").exists()
    assert (Path(said["headers"]) / "mlir_offload.h").exists()


@pytest.mark.parametrize("asked", ["0.0.9", "0.1.0", "0.1.9", "0.2", "1", "0.1", "0"])
def test_cmake_takes_the_version_for_its_minor_release_only(asked: str, tmp_path: Path) -> None:
    parts = asked.split(".")
    script = tmp_path / "asked.cmake"
    script.write_text(
        f"set(PACKAGE_FIND_VERSION {asked})\n"
        f"set(PACKAGE_FIND_VERSION_COUNT {len(parts)})\n"
        f"set(PACKAGE_FIND_VERSION_MAJOR {parts[0]})\n"
        f"set(PACKAGE_FIND_VERSION_MINOR {parts[1] if len(parts) > 1 else 0})\n"
        f'include("{ROOT}/toolchain/cmake/MLIROffloadConfigVersion.cmake")\n'
        f'message(STATUS "${{PACKAGE_VERSION}} ${{PACKAGE_VERSION_COMPATIBLE}}")\n',
        encoding="utf-8",
    )
    cmake = Path(sys.executable).with_name("cmake")
    said = subprocess.run((cmake, "-P", script), capture_output=True, text=True, check=True)
    version, _, compatible = said.stdout.removeprefix("-- ").strip().partition(" ")
    assert version == __version__
    assert (compatible == "TRUE") == (asked in {"0", "0.1", "0.1.0"})


def test_pkg_config_says_the_version_of_the_driver() -> None:
    files = sorted((ROOT / "toolchain" / "pkgconfig").iterdir())
    assert len(files) == 3
    for file in files:
        assert f"\nVersion: {__version__}\n" in file.read_text(encoding="utf-8")


def test_the_wheel_installs_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entry_points = next(
            name for name in archive.namelist() if name.endswith("entry_points.txt")
        )
        assert "mlir-offload = mlir_offload.__main__:main" in archive.read(entry_points).decode()
