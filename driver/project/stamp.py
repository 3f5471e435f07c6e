"""The files of a project as they are now, and where a search may find others instead."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

# A file that was written just now may be written again within the same tick of its clock.
_SETTLED_NS = 2_000_000_000
_UNSETTLED = -1
_LIBRARIES = {".a": ".so", ".so": ".a"}


class Stamp(Struct, frozen=True):
    """A file as it was: time of change (-1 where it says nothing), size, hash of its content.

    The time is that of the last change of any kind, which nobody can set back as that of the content.
    """

    changed_ns: int
    size_bytes: int
    digest: str


class FileStamps(Struct):
    """The files of a project as they are now, each looked at once until it is forgotten."""

    root: Path
    _status: dict[str, os.stat_result | None] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _found: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def find(self, path: str) -> Stamp | None:
        """Return the stamp of a file, None where there is none."""
        status = self._stat(path)
        if status is None:
            return None
        age_ns = time.time_ns() - status.st_ctime_ns
        # A clock that was set back makes files of the future.
        is_settled = age_ns > _SETTLED_NS
        digest = self._digest(path)
        if not digest:
            return None
        return Stamp(status.st_ctime_ns if is_settled else _UNSETTLED, status.st_size, digest)

    def equals(self, path: str, stamp: Stamp) -> bool:
        """Say whether a file is what it was."""
        status = self._stat(path)
        if status is None or status.st_size != stamp.size_bytes:
            return False
        return status.st_ctime_ns == stamp.changed_ns or self._digest(path) == stamp.digest

    def found_in(self, folder: str, path: str) -> tuple[str, ...]:
        """Return the files that a search of a folder finds by a name that was found as the path."""
        if (folder, path) not in self._found:
            names = _searched(folder, path)
            self._found[folder, path] = tuple(name for name in names if self._stat(name))
        return self._found[folder, path]

    def places(self, folder: str, path: str) -> Iterator[str]:
        """Yield the directories in which a file may appear that this search finds then."""
        for name in _searched(folder, path):
            place, _, _ = name.rpartition("/")
            while place and self._stat(place) is None:
                place, _, _ = place.rpartition("/")
            yield place or "."

    def folder(self, path: str) -> tuple[int, int] | None:
        """Return time and size of a directory, None if it was changed just now."""
        status = self._stat(path)
        if status is None or time.time_ns() - status.st_ctime_ns <= _SETTLED_NS:
            return None
        return status.st_ctime_ns, status.st_size

    def changed_ns(self, path: str) -> int:
        """Return when a file was changed, 0 where there is none."""
        status = self._stat(path)
        return status.st_ctime_ns if status else 0

    def forget(self, paths: Iterable[object]) -> None:
        """Look at these files again when next asked."""
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
        """Return the hash of a file, nothing where it cannot be read."""
        if path not in self._digests:
            try:
                with (self.root / path).open("rb") as stream:
                    self._digests[path] = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                self._digests[path] = ""
        return self._digests[path]


def _searched(folder: str, path: str) -> Iterator[str]:
    """Yield what a search of a folder looks for: an end of the path is what was written.

    For a library both forms are: `-lq` finds the shared one first.
    """
    parts = path.strip("/").split("/")
    for number in range(1, len(parts) + 1):
        name = "/".join((folder, *parts[-number:]))
        yield name
        stem, suffix = os.path.splitext(name)  # noqa: PTH122
        if suffix in _LIBRARIES:
            yield f"{stem}{_LIBRARIES[suffix]}"
