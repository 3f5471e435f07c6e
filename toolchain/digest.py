"""SHA-256 without OpenSSL, for short texts: loading its library takes longer than a small program is read.

The module `random` of Python's library does the same. Files are hashed with `hashlib`, which is faster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Protocol

# Of Python 3.12 and later, of 3.11, and of any.
_MODULES = ("_sha2", "_sha256", "hashlib")


class Digest(Protocol):
    """What `hashlib.sha256` returns."""

    def update(self, data: bytes, /) -> None:
        """Add content."""

    def digest(self) -> bytes:
        """Return the hash."""

    def hexdigest(self) -> str:
        """Return the hash in hexadecimal."""


def sha256(data: bytes = b"") -> Digest:
    """Return `hashlib.sha256(data)`."""
    return _constructor()(data)


@cache
def _constructor() -> Callable[[bytes], Digest]:
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            found: Callable[[bytes], Digest] = import_module(name).sha256
            return found
    raise ImportError(_MODULES[-1])
