"""Memory for waves: regions by address, with loads and stores of many lanes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Vector = np.ndarray[Any, np.dtype[Any]]


class Memory:
    """Regions by start address; an access outside of them is an error."""

    def __init__(self, regions: Mapping[int, bytearray]) -> None:
        self.regions = dict(regions)
        self.stores = 0
        self._bytes = {
            start: np.frombuffer(data, np.uint8) for start, data in regions.items() if data
        }

    def at(self, address: int, size: int) -> memoryview:
        """Return `size` bytes at an address."""
        start = self._start_of(address, address + size)
        return memoryview(self.regions[start])[address - start : address - start + size]

    def load(self, addresses: Vector, size: int) -> Vector:
        """Return `size` bytes from each address, one row per address."""
        data, places = self._places(addresses, size)
        found: Vector = data[places]
        return found

    def store(self, addresses: Vector, rows: Vector) -> None:
        """Write one row of bytes at each address, in order."""
        data, places = self._places(addresses, rows.shape[1])
        data[places] = rows
        self.stores += len(rows)

    def update(
        self, addresses: Vector, operands: Vector, change: Callable[[int, list[int]], int]
    ) -> Vector:
        """Apply `change` with its operands to the 32-bit word at each address, in order; return the old words."""
        before = np.zeros((len(addresses), 4), np.uint8)
        for row, (address, given) in enumerate(zip(addresses, operands, strict=True)):
            place = self.at(int(address), 4)
            before[row] = np.frombuffer(place, np.uint8)
            changed = change(int.from_bytes(place, "little"), [int(one) for one in given])
            self.stores += 1
            place[:] = (changed & 0xFFFFFFFF).to_bytes(4, "little")
        return before

    def _places(self, addresses: Vector, size: int) -> tuple[Vector, Vector]:
        """Return the region of the addresses, and the offsets of their bytes in it."""
        if not len(addresses):
            return np.zeros(0, np.uint8), np.zeros((0, size), np.int64)
        start = self._start_of(int(addresses.min()), int(addresses.max()) + size)
        offsets = (addresses.astype(np.uint64) - np.uint64(start)).astype(np.int64)
        return self._bytes[start], offsets[:, None] + np.arange(size)

    def _start_of(self, first: int, end: int) -> int:
        for start, data in self.regions.items():
            if start <= first and end <= start + len(data):
                return start
        msg = f"access of the bytes from {first:#x} to {end:#x}"
        raise IndexError(msg)
