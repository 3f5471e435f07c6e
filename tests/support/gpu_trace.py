"""Find out which calls in a recorded trace of a GPU runtime may overlap.

tests/integration/runtime/recording_gpu.c writes the trace. Work is ordered by its stream, by events that one
stream records and another waits for, and by calls in which the host waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ON_STREAM = re.compile(r" on (\S+)")
_WORD = re.compile(r"\S+")
# The host waits in these calls until all work is complete, by specification or in practice.
_WAITS_FOR_ALL = ("Malloc ", "MallocManaged ", "Free ", "DeviceSynchronize ")


@dataclass(frozen=True, slots=True)
class Trace:
    """The API calls of a program in order; `behind` are, for each call, the earlier calls that it waits for."""

    calls: tuple[str, ...]
    behind: tuple[frozenset[int], ...]

    def find(self, text: str) -> int:
        """Return the number of the only call whose line has this text."""
        (found,) = (number for number, call in enumerate(self.calls) if text in call)
        return found

    def may_overlap(self, one: str, other: str) -> bool:
        """Return whether neither of two calls waits for the other."""
        first, second = sorted((self.find(one), self.find(other)))
        return first not in self.behind[second]


def read_trace(lines: Iterable[str]) -> Trace:
    """Parse a trace; lines that are not API calls are ignored."""
    calls = [line for line in lines if re.match(r"(?:cuda|hip)[A-Z]", line)]
    direct = [set(_waits_of(calls, number)) for number in range(len(calls))]
    behind: list[frozenset[int]] = []
    for number in range(len(calls)):
        near = direct[number]
        behind.append(frozenset(near).union(*(behind[earlier] for earlier in near)))
    return Trace(tuple(calls), tuple(behind))


def _waits_of(calls: Sequence[str], number: int) -> Iterable[int]:
    """Yield the earlier calls that this one directly waits for."""
    call = calls[number]
    name = call.removeprefix("cuda").removeprefix("hip")
    if name.startswith(_WAITS_FOR_ALL):
        yield from range(number)
    yield from (earlier for earlier in range(number) if _holds_the_host(calls[earlier]))
    stream = _stream_of(call)
    if stream:
        yield from (earlier for earlier in range(number) if _stream_of(calls[earlier]) == stream)
    waited = re.search(r"StreamWaitEvent \S+ for (\S+)|EventSynchronize (\S+)", call)
    if waited:
        event = waited[1] or waited[2]
        recorded = [n for n in range(number) if f"EventRecord {event} " in calls[n]]
        yield from recorded[-1:]


def _holds_the_host(call: str) -> bool:
    name = call.removeprefix("cuda").removeprefix("hip")
    return name.startswith((*_WAITS_FOR_ALL, "StreamSynchronize ", "EventSynchronize "))


def _stream_of(call: str) -> str:
    if "StreamSynchronize" in call or "StreamWaitEvent" in call:
        return str(_WORD.findall(call)[1])
    found = _ON_STREAM.search(call)
    return str(found[1]) if found else ""
