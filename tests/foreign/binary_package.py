"""Unpack files of distribution packages that are not installed into a cache directory.

Debian's libmlir packages of two releases conflict, so only one of them can be installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def find_runner_libraries(major: int, cache: Path) -> Path:
    """Return the directory with MLIR's runner libraries of a release, downloading them if required.

    Raises CalledProcessError if apt does not have the package, as do the other functions.
    """
    path = _find_file(f"libmlir-{major}", major, "lib/libmlir_c_runner_utils.so*", cache)
    return path.parent


def find_filecheck(major: int, cache: Path) -> Path:
    """Return FileCheck of a release, downloading it if required."""
    return _find_file(f"llvm-{major}-tools", major, "bin/FileCheck", cache)


def find_headers(major: int, cache: Path) -> tuple[Path, ...]:
    """Return the directories with the headers of LLVM and MLIR of a release, downloading them if required."""
    mlir = _find_file(f"libmlir-{major}-dev", major, "include/mlir", cache).parent
    folder = f"../../include/llvm-{major}/llvm"
    llvm = _find_file(f"llvm-{major}-dev", major, folder, cache).resolve().parent
    return mlir, llvm, llvm.with_name(f"llvm-c-{major}")


def _find_file(package: str, major: int, pattern: str, cache: Path) -> Path:
    own = cache / package
    folder = f"usr/lib/llvm-{major}"
    for root in (Path("/"), own):
        if found := sorted((root / folder).glob(pattern)):
            return found[0]
    _unpack(_download(package, cache), own)
    return next((own / folder).glob(pattern))


def _download(package: str, cache: Path) -> Path:
    print(f"fetching the package {package}", file=sys.stderr, flush=True)  # noqa: T201
    folder = cache / "packages"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ("apt-get", "download", "-qq", "-oAPT::Sandbox::User=root", package)
    subprocess.run(command, cwd=folder, check=True)
    return next(folder.glob("*.deb"))


def _unpack(package: Path, prefix: Path) -> None:
    partial = prefix.with_name(f"{prefix.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    subprocess.run(("dpkg-deb", "-x", str(package), str(partial)), check=True)
    shutil.rmtree(prefix, ignore_errors=True)
    partial.rename(prefix)
    package.unlink()
