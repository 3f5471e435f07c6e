"""Extract tar archives with every supported release of Python."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, place: Path) -> None:
    """Extract all members. Python 3.11.2, which Debian 12 has, does not know the filter that later ones require."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(place, filter="data")
    else:
        archive.extractall(place)  # noqa: S202
