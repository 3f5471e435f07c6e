"""How often the tests repeat what luck could hide: a few times, and many times in `make stress`."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("MLIR_OFFLOAD_STRESS", "1"))


def rounds(few: int) -> range:
    """Return the numbers of the rounds, from which a test makes its seeds."""
    return range(few * FACTOR)
