"""Files in public wheels, downloaded by pip and verified by hash."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from msgspec import Struct

TABLE = Path(__file__).with_name("wheels.yaml")
_EXECUTABLE = 0o755


class Wheel(Struct, frozen=True):
    """A wheel of a package index, and the members that are read."""

    package: str
    version: str
    sha256: str
    members: tuple[str, ...]


def load_wheels() -> tuple[Wheel, ...]:
    """Return the wheels of the table."""
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["wheels"]
    return tuple(Wheel(**{**row, "members": tuple(row["members"])}) for row in rows)


def fetch_members(wheel: Wheel, cache: Path) -> Iterator[Path]:
    """Yield the members of a wheel, downloading and unpacking it if required.

    Raises RuntimeError if the hash of the wheel differs from that in the table.
    """
    folder = cache / f"{wheel.package}-{wheel.version}"
    if not all((folder / member).is_file() for member in wheel.members):
        _unpack(_download(wheel, cache), wheel, folder)
    yield from (folder / member for member in wheel.members)


def find_member(name: str, cache: Path) -> Path:
    """Return the member with a file name, from the wheel that contains it."""
    wheel = next(one for one in load_wheels() if any(name in path for path in one.members))
    return next(path for path in fetch_members(wheel, cache) if path.name == name)


def download_wheel(requirement: str, folder: Path) -> None:
    """Download the wheel of one requirement, without its dependencies, into a directory."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "download", *options, requirement], check=True)


def _download(wheel: Wheel, cache: Path) -> Path:
    download_wheel(f"{wheel.package}=={wheel.version}", cache)
    stem = f"{wheel.package.replace('-', '_')}-{wheel.version}"
    (found,) = cache.glob(f"{stem}-*.whl")
    return found


def _unpack(archive: Path, wheel: Wheel, folder: Path) -> None:
    with archive.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != wheel.sha256:
        msg = f"{archive.name} has the SHA-256 {found}, not {wheel.sha256}"
        raise RuntimeError(msg)
    with zipfile.ZipFile(archive) as content:
        for member in wheel.members:
            Path(content.extract(member, folder)).chmod(_EXECUTABLE)
