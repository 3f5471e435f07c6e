"""Upstream's tests of a release, from the source package of the distribution.

apt downloads the package list and the archive into cache directories, without changing the system. Only the
directories of tests are unpacked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# The suites in which new LLVM releases appear first, in the archive that apt is configured with.
_NEWER_SUITES = ("trixie", "sid")
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_TESTS = "mlir/test"
_FOLDERS = ("Integration", "Conversion", "Dialect/SparseTensor/GPU")


def fetch_tests(llvm_version: str, cache: Path, *, with_all: bool = False) -> Path:
    """Return the directory mlir/test of a release such as 22.1.8, downloading it if required.

    Without `with_all`, it only contains the directories of programs. If no suite has the sources of that
    release, they are those of another point release. Raises RuntimeError if no suite has any.
    """
    folders = (".",) if with_all else _FOLDERS
    folder = cache / f"llvm-{llvm_version}{'-all' if with_all else ''}"
    if not all((folder / _TESTS / one).is_dir() for one in folders):
        archive = _fetch_archive(llvm_version, cache)
        _unpack(archive, folder, [f"*/{_TESTS}/{one}".removesuffix("/.") for one in folders])
        archive.unlink()
    return folder / _TESTS


def fetch_source(package: str, cache: Path) -> Path:
    """Return the archive of a source package in the distribution's release, downloading it if required."""
    found = sorted(cache.glob(f"{package}_*.orig.tar.*"))
    if not found:
        cache.mkdir(parents=True, exist_ok=True)
        options = _apt_options(cache)
        _run(("apt-get", *options, "update", "-qq"), cache)
        _run(
            ("apt-get", *options, "source", "-qq", "--download-only", "--tar-only", package), cache
        )
        found = sorted(cache.glob(f"{package}_*.orig.tar.*"))
    return found[0]


def llvm_version(major: int) -> str:
    """Return the version of the installed release."""
    command = (f"/usr/lib/llvm-{major}/bin/llvm-config", "--version")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def default_cache() -> Path:
    """Return the directory for downloads, outside of the source tree."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mlir-offload-foreign"


def _fetch_archive(llvm_version: str, cache: Path) -> Path:
    package = f"llvm-toolchain-{llvm_version.partition('.')[0]}"
    options = _apt_options(cache)
    print(f"fetching the source package {package} {llvm_version}", file=sys.stderr, flush=True)  # noqa: T201
    _run(("apt-get", *options, "update", "-qq"), cache)
    for version in _versions(package, llvm_version, options):
        command = ("apt-get", *options, "source", "-qq", "--download-only", "--tar-only")
        # A mirror may list a suite without having all of its files; then the next suite may have them.
        done = subprocess.run((*command, f"{package}={version}"), cwd=cache, check=False)
        found = sorted(cache.glob(f"{package}_*.orig.tar.xz"))
        if done.returncode == 0 and found:
            print(f"the tests are those of {version}", file=sys.stderr, flush=True)  # noqa: T201
            return found[0]
    msg = f"no suite of Debian has the sources of {package}; give them by --source"
    raise RuntimeError(msg)


def _apt_options(cache: Path) -> tuple[str, ...]:
    lists = cache / "apt" / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "apt" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    sources = cache / "apt" / "sources.list"
    lines = [f"deb-src [signed-by={_KEYS}] {suite} main" for suite in _suites()]
    sources.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": lists,
        "Dir::Cache": cache / "apt",
        "APT::Sandbox::User": "root",
        # A release is requested by its version, which an outdated mirror also provides.
        "Acquire::Check-Valid-Until": "false",
    }
    return tuple(f"-o{name}={value}" for name, value in settings.items())


def _suites() -> Iterator[str]:
    """Yield the address and name of the configured apt suites, then of newer ones."""
    fields = "$(LABEL)|$(REPO_URI) $(CODENAME)"
    command = (
        "apt-get",
        "indextargets",
        "--format",
        fields,
        "Created-By: Packages",
        "Origin: Debian",
    )
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = dict.fromkeys(line.partition("|")[::2] for line in listed.splitlines())
    yield from (suite for _, suite in rows)
    archives = dict.fromkeys(suite.split()[0] for label, suite in rows if label == "Debian")
    yield from (f"{archive} {suite}" for archive in archives for suite in _NEWER_SUITES)


def _versions(package: str, llvm_version: str, options: Sequence[str]) -> list[str]:
    """Return the versions of a source package: that of the release, then other point releases."""
    command = ("apt-cache", *options, "showsrc", package)
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fields = (line.partition(": ") for line in listed.splitlines())
    found = dict.fromkeys(version for key, _, version in fields if key == "Version")
    return sorted(found, key=lambda version: (llvm_version in version, version), reverse=True)


def _unpack(archive: Path, folder: Path, tests: Sequence[str]) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    selected = ("--strip-components=1", "--wildcards", *tests)
    _run(("tar", "-C", str(partial), "-xJf", str(archive), *selected), folder.parent)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True)
