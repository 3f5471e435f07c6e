"""The attribute memory(...) in bitcode: two bits for each place, which releases have numbered differently."""

from __future__ import annotations

from mlir_offload.toolchain.skew.limits import load_limits

_ACCESSES = {1: "reads", 2: "writes", 3: "reads and writes"}
_OTHER = "other"
_VERSION_BITS = 56
_FIRST_VERSION = 1


def lost_effects(word: int, consumer: int) -> tuple[str, ...]:
    """Return what a function does that an older release would believe it does not: `writes other`."""
    table = load_limits()
    theirs = table.memory_locations(consumer)
    newest = table.memory[-1][1]
    # The top byte tells which numbering the writer has; the older one is upgraded by each reader.
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
