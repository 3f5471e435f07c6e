"""The current state of the files of a project, and where a search could find other files instead."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

# A file that was written within this time may change again without a new time stamp.
_SETTLED_NS = 2_000_000_000
_UNSETTLED = -1
_LIBRARIES = {".a": ".so", ".so": ".a"}


class Stamp(Struct, frozen=True):
    """The state of a file: change time in ns (-1 if it was too recent), size in bytes, hash.

    The change time is st_ctime, which programs cannot set back, unlike the modification time.
    """

    changed_ns: int
    size_bytes: int
    digest: str


class FileStamps(Struct):
    """A cache of the current state of files; each file is read once until `forget`."""

    root: Path
    _status: dict[str, os.stat_result | None] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _found: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def find(self, path: str) -> Stamp | None:
        """Return the stamp of a file; None if it does not exist."""
        status = self._stat(path)
        if status is None:
            return None
        age_ns = time.time_ns() - status.st_ctime_ns
        # If the clock was set back, the age is negative, and the file not settled.
        is_settled = age_ns > _SETTLED_NS
        digest = self._digest(path)
        if not digest:
            return None
        return Stamp(status.st_ctime_ns if is_settled else _UNSETTLED, status.st_size, digest)

    def equals(self, path: str, stamp: Stamp) -> bool:
        """Return whether a file is unchanged."""
        status = self._stat(path)
        if status is None or status.st_size != stamp.size_bytes:
            return False
        return status.st_ctime_ns == stamp.changed_ns or self._digest(path) == stamp.digest

    def found_in(self, folder: str, path: str) -> tuple[str, ...]:
        """Return the files that a search in a directory could find for a name that was resolved to `path`."""
        if (folder, path) not in self._found:
            names = _searched(folder, path)
            self._found[folder, path] = tuple(name for name in names if self._stat(name))
        return self._found[folder, path]

    def places(self, folder: str, path: str) -> Iterator[str]:
        """Yield the directories in which a file could appear that this search would find."""
        for name in _searched(folder, path):
            place, _, _ = name.rpartition("/")
            while place and self._stat(place) is None:
                place, _, _ = place.rpartition("/")
            yield place or "."

    def folder(self, path: str) -> tuple[int, int] | None:
        """Return change time (ns) and size of a directory; None if it changed too recently."""
        status = self._stat(path)
        if status is None or time.time_ns() - status.st_ctime_ns <= _SETTLED_NS:
            return None
        return status.st_ctime_ns, status.st_size

    def changed_ns(self, path: str) -> int:
        """Return the change time of a file in ns, 0 if it does not exist."""
        status = self._stat(path)
        return status.st_ctime_ns if status else 0

    def forget(self, paths: Iterable[object]) -> None:
        """Remove these files from the cache."""
        for path in map(str, paths):
            self._status.pop(path, None)
            self._digests.pop(path, None)

    def _stat(self, path: str) -> os.stat_result | None:
        if path not in self._status:
            try:
                self._status[path] = os.stat(f"{self.root}/{path}" if path[:1] != "/" else path)  # noqa: PTH116
            except OSError:
                self._status[path] = None
        return self._status[path]

    def _digest(self, path: str) -> str:
        """Return the hash of a file, empty if it cannot be read."""
        if path not in self._digests:
            try:
                with (self.root / path).open("rb") as stream:
                    self._digests[path] = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                self._digests[path] = ""
        return self._digests[path]


def _searched(folder: str, path: str) -> Iterator[str]:
    """Yield the files that a search in a directory may look for: the searched name is some suffix of the path.

    For a library both forms are included, because `-lq` prefers the shared one.
    """
    parts = path.strip("/").split("/")
    for number in range(1, len(parts) + 1):
        name = "/".join((folder, *parts[-number:]))
        yield name
        stem, suffix = os.path.splitext(name)  # noqa: PTH122
        if suffix in _LIBRARIES:
            yield f"{stem}{_LIBRARIES[suffix]}"
