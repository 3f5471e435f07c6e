"""Files of this user that can be made again: where they lie, and how they are written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_PRIVATE = 0o700


def user_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory of this user for what can be made again (XDG Base Directory)."""
    given = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    # Below a file nothing can be kept, and without a home nothing is.
    place = Path(home, ".cache") if home.startswith("/") else Path(os.devnull)
    return (Path(given) if given.startswith("/") else place) / "mlir-offload"


def replace_file(file: Path, text: str) -> None:
    """Write a file of this user in one rename, with the directories above it."""
    replace_bytes(file, text.encode())


def replace_bytes(file: Path, content: bytes) -> None:
    """Write a file of this user in one rename, with the directories above it."""
    # Loading it takes longer than most calls spend here, which only read.
    import tempfile

    file.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=file.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        Path(beside).replace(file)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
