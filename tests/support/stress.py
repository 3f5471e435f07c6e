"""The number of repetitions of randomized tests: few by default, many with `make stress`."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("MLIR_OFFLOAD_STRESS", "1"))


def rounds(few: int) -> range:
    """Return the numbers of the rounds, from which a test derives its seeds."""
    return range(few * FACTOR)
