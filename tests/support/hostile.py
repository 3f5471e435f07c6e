"""Malformed input, with which every reader must either succeed or report an error."""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from mlir_offload.toolchain.errors import MlirOffloadError

Read = Callable[[bytes], object]

# Extreme values for fields: limits of every width, and numbers near the size of the file.
_EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
# The limit for a hang, in processor time, so that the load of the machine does not matter.
_SECONDS = 60.0
_MEMORY_FLOOR = 4 << 20


def truncations(data: bytes, step: int = 1) -> Iterator[bytes]:
    """Yield the data truncated at each byte."""
    for end in range(0, len(data), step):
        yield data[:end]


def bit_flips(data: bytes, step: int = 1) -> Iterator[bytes]:
    """Yield the data with each single bit flipped."""
    for place in range(0, len(data), step):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            yield bytes(changed)


def extreme_fields(data: bytes, limit: int = 4096) -> Iterator[bytes]:
    """Yield the data with each aligned 2-, 4- and 8-byte field set to its extremes."""
    near = (len(data) - 1, len(data), len(data) + 1)
    for width in (2, 4, 8):
        for place in range(0, min(len(data), limit) - width + 1, width):
            for value in (*_EXTREMES, *near):
                changed = bytearray(data)
                changed[place : place + width] = (value & ((1 << 8 * width) - 1)).to_bytes(
                    width, "little"
                )
                yield bytes(changed)


def spliced(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Yield the data with random pieces copied over others: overlaps, loops, repeated headers."""
    source = random.Random(seed)  # noqa: S311 (test data, the same each time)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(source.randint(1, 4)):
            size = source.randint(1, min(64, len(data)))
            begin, end = (source.randrange(len(data) - size + 1) for _ in range(2))
            changed[end : end + size] = data[begin : begin + size]
        yield bytes(changed)


def survives(read: Read, variants: Iterator[bytes]) -> int:
    """Read every variant. Each must return a result or raise one of our errors within the time limit.

    Returns the number of rejected variants.
    """
    refused = 0
    for number, data in enumerate(variants):
        begin = time.process_time()
        try:
            read(data)
        except MlirOffloadError:
            refused += 1
        except Exception as error:  # noqa: BLE001 (any other exception is what this looks for)
            pytest.fail(f"variant {number} ({len(data)} bytes): {type(error).__name__}: {error}")
        assert time.process_time() - begin < _SECONDS, f"variant {number} took too long"
    return refused


def peak_memory(read: Read, data: bytes) -> int:
    """Return the peak of Python's memory in bytes while it read the data, rejected or not."""
    tracemalloc.start()
    try:
        read(data)
    except MlirOffloadError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def assert_bounded(read: Read, data: bytes, multiple: float) -> None:
    """Fail if reading takes more than `multiple` times the size of the file plus 4 MiB."""
    peak = peak_memory(read, data)
    assert peak <= _MEMORY_FLOOR + multiple * len(data), f"{peak} bytes for {len(data)}"


def count_calls(work: Callable[[], object]) -> int:
    """Return the number of function calls of `work`, a cost that does not depend on the machine's load."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
