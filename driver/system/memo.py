"""Small facts that took long to find, kept in the user's cache directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_PRIVATE = 0o700


def user_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory of this user for what can be made again (XDG Base Directory)."""
    given = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    # Below a file nothing can be kept, and without a home nothing is.
    place = Path(home, ".cache") if home.startswith("/") else Path(os.devnull)
    return (Path(given) if given.startswith("/") else place) / "mlir-offload"


class Memo(Struct, frozen=True):
    """One small file for each subject, replaced whole, so that any number of runs may share them.

    A fact holds for one `stamp` of its subject only. What cannot be read or written is not kept.
    """

    directory: Path

    def find(self, subject: str, stamp: str) -> str | None:
        """Return what was kept of the subject, or None where its stamp was another."""
        try:
            known = json.loads(self._file(subject).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(known, list) or len(known) != 3 or known[:2] != [subject, stamp]:  # noqa: PLR2004
            return None
        return known[2] if isinstance(known[2], str) else None

    def keep(self, subject: str, stamp: str, fact: str) -> None:
        """Keep a fact, in place of what was known of the subject."""
        with contextlib.suppress(OSError):
            replace_file(self._file(subject), json.dumps([subject, stamp, fact]))

    def _file(self, subject: str) -> Path:
        name = hashlib.sha256(subject.encode("utf-8", "surrogateescape")).hexdigest()
        return self.directory / name[:32]


def replace_file(file: Path, text: str) -> None:
    """Write a file of this user in one rename, with the directories above it."""
    file.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=file.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(beside).replace(file)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
