"""Decode the attribute memory(...): two bits per memory location, whose numbering depends on the release."""

from __future__ import annotations

from mlir_offload.toolchain.skew.limits import load_limits

_ACCESSES = {1: "reads", 2: "writes", 3: "reads and writes"}
_OTHER = "other"
_VERSION_BITS = 56
_FIRST_VERSION = 1


def lost_effects(word: int, consumer: int) -> tuple[str, ...]:
    """Return the memory effects that an older release assumes to be absent, such as `writes other`."""
    table = load_limits()
    theirs = table.memory_locations(consumer)
    newest = table.memory[-1][1]
    # The top byte is the version of the numbering. Every reader upgrades version 0.
    if not theirs or theirs == newest or word >> _VERSION_BITS != _FIRST_VERSION:
        return ()
    lost = []
    for place, name in enumerate(newest):
        promised = _bits(word, theirs.index(name if name in theirs else _OTHER))
        missing = _bits(word, place) & ~promised
        if missing:
            lost.append(f"{_ACCESSES[missing]} {name}")
    return tuple(lost)


def _bits(word: int, place: int) -> int:
    return word >> (2 * place) & 3
