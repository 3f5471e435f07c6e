"""What wrote a bitcode module, by the string that it carries (its identification block)."""

from __future__ import annotations

import re

_RELEASE = re.compile(r"LLVM ?(\d{1,4})\.\d")
_PLAIN = re.compile(r"LLVM ?\d{1,4}(?:\.\d+){1,2}")


def llvm_major(producer: str) -> int | None:
    """Return the release of LLVM that wrote a module; None where its producer names none."""
    found = _RELEASE.match(producer)
    return int(found[1]) if found else None


def is_release(producer: str) -> bool:
    """Return whether the producer is a release of LLVM, no fork and no build of its development."""
    return _PLAIN.fullmatch(producer) is not None
