"""An on-disk cache of small facts that take long to compute."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from msgspec import Struct

from mlir_offload.driver.system.workspace import replace_file
from mlir_offload.toolchain.byte_view import sha256


class Memo(Struct, frozen=True):
    """One small file per subject, replaced atomically, so that concurrent processes can share them.

    A fact is valid only for one `stamp` of its subject. Read and write errors are ignored.
    """

    directory: Path

    def find(self, subject: str, stamp: str) -> str | None:
        """Return the cached fact about a subject; None if there is none for this stamp."""
        try:
            known = json.loads(self._file(subject).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(known, list) or len(known) != 3 or known[:2] != [subject, stamp]:  # noqa: PLR2004
            return None
        return known[2] if isinstance(known[2], str) else None

    def keep(self, subject: str, stamp: str, fact: str) -> None:
        """Store a fact, replacing the previous one about the subject."""
        with contextlib.suppress(OSError):
            replace_file(self._file(subject), json.dumps([subject, stamp, fact]))

    def _file(self, subject: str) -> Path:
        name = sha256(subject.encode("utf-8", "surrogateescape")).hexdigest()
        return self.directory / name[:32]
