"""Contents that a check accepted, kept by their digests: equal bytes need not be checked by it again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct, field

from mlir_offload.driver.system.workspace import replace_bytes, user_cache
from mlir_offload.toolchain.digest import sha256

_DIGEST_BYTES = 32
_MOST = 1 << 13


class Accepted(Struct):
    """The digests of one check: its name, and all that its verdict depends on but for the content.

    Only what a check has nothing to say about is kept, so that a file which cannot be read or written
    costs time and hides nothing.
    """

    file: Path
    _known: dict[bytes, None] = field(default_factory=dict)
    _has_more: bool = False

    def holds(self, digest: bytes) -> bool:
        """Return whether the check accepted this content before."""
        return digest in self._known

    def add(self, digests: Iterable[bytes]) -> None:
        """Remember what the check accepted."""
        for digest in digests:
            self._has_more = self._has_more or digest not in self._known
            self._known[digest] = None

    def keep(self) -> None:
        """Write what was added for later calls, the latest only where there is too much."""
        if self._has_more:
            content = b"".join(list(self._known)[-_MOST:])
            with contextlib.suppress(OSError):
                replace_bytes(self.file, content + sha256(content).digest())


def load_accepted(check: str, depends_on: Sequence[str]) -> Accepted:
    """Return what a check has accepted, as the user's cache knows it; a damaged file knows nothing."""
    name = sha256("\0".join(depends_on).encode("utf-8", "surrogateescape")).hexdigest()
    file = user_cache(os.environ) / check / name[:32]
    return Accepted(file, dict.fromkeys(_stored(file)))


def _stored(file: Path) -> list[bytes]:
    try:
        stored = file.read_bytes()
    except OSError:
        return []
    content, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    if len(content) % _DIGEST_BYTES or sha256(content).digest() != digest:
        return []
    return [content[at : at + _DIGEST_BYTES] for at in range(0, len(content), _DIGEST_BYTES)]


def folder_stamps(folders: Iterable[Path]) -> tuple[str, ...]:
    """Return what tells the files in folders from those of another state of them, without reading them."""
    return tuple(
        f"{entry.name} {status.st_size} {status.st_mtime_ns}"
        for folder in folders
        for entry in sorted(os.scandir(folder), key=lambda one: one.name)
        if entry.is_file()
        for status in (entry.stat(),)
    )
