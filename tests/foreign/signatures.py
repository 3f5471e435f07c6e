"""Derive which releases of LLVM changed the type of an intrinsic or took it away, and what newer readers make of it.

usage: python tests/foreign/signatures.py [--releases=14,15,...] [--root=N=DIR] [--write]

The libraries of the releases tell the types (tests/foreign/signature_probe.py). Newer readers get a call with each type
that changed. It writes toolchain/data/intrinsic_signatures.yaml.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.intrinsic_call import Call, Taken, answers  # noqa: E402
from foreign.reader import Reader, put_table, table_arguments  # noqa: E402
from foreign.signature_probe import TYPES  # noqa: E402
from msgspec import structs  # noqa: E402

from mlir_offload.toolchain.skew.signature import (  # noqa: E402
    OPEN,
    Signature,
    split_signature,
)

TABLE = ROOT / "toolchain" / "data" / "intrinsic_signatures.yaml"
_PROBE = Path(__file__).with_name("signature_probe.py")
# The widths that an overload's own types have in the first answer of the probe.
_OWN_BITS = re.compile(r"\bi(\d+)\b")
_FIRST_BITS, _STEP = 30, 4
# With what an overload is tried, by its number of types: numbers of TYPES.
_ONE = tuple((number,) for number in range(len(TYPES)))
_TWO = tuple((one, other) for one in (0, 1, 3, 4, 6, 7, 8, 13, 14) for other in (one, 0, 1, 6))
_THREE = tuple(
    (one, *rest)
    for one in (13, 14, 0, 3, 4, 7)
    for rest in ((one, one), (one, 1), (1, 1), (6, 1), (6, one))
)
# Most of these are for vectors of RISC-V: vectors, elements, and the length as a number.
_FOUR = tuple((one, *rest, 1) for one in (13, 14) for rest in product((0, 1, 3, 13, 14), repeat=2))
_TRIED = {1: _ONE, 2: _TWO, 3: _THREE, 4: _FOUR}
_SUFFIX = ".x{number}"
# What integers are tried; the place of a number that must be a power of two is not known.
_NUMBERS = (0, 1)

Shapes = Mapping[str, Signature]


def ask(reader: Reader, requests: Iterable[str]) -> dict[str, list[str]]:
    """Return the types that the library of a reader has for each request; it must not be that of a wheel."""
    python = os.path.realpath(sys.executable)
    command = (*reader.loader, python, str(_PROBE), str(reader.binary))
    text = "\n".join(requests)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {request: types for request, *types in lines}


def shape(since: int, types: Sequence[str]) -> Signature:
    """Return a type with what differs between two answers left open."""
    first, last = split_signature(types[0]), split_signature(types[-1])
    result = first[0] if first[0] == last[0] else OPEN
    pairs = zip(first[1], last[1], strict=True)
    return Signature(since, result, tuple(one if one == other else OPEN for one, other in pairs))


def concrete(reader: Reader, names: Mapping[str, Sequence[str]]) -> dict[str, Call]:
    """Return for each name a call that a reader takes; those for which none is found are left out."""
    found = {name: [Call(name, types[0])] for name, types in names.items() if len(types) == 1}
    requests = {
        f"{name} {' '.join(map(str, numbers))}": name
        for name, types in names.items()
        if len(types) > 1
        for numbers in _choices(types[0])
    }
    for request, types in ask(reader, requests).items():
        own = found.setdefault(requests[request], [])
        own.append(Call(requests[request], types[0], _SUFFIX.format(number=len(own))))
    read: dict[str, Call] = {}
    # The next choice of all names at once, until each has one that is read.
    for rank, number in product(range(max(map(len, found.values()), default=0)), _NUMBERS):
        left = [own[rank] for name, own in found.items() if name not in read and rank < len(own)]
        calls = [replace(call, number=number) for call in left if call.is_possible]
        taken = answers(reader, calls)
        read |= {call.name: call for call in calls if taken[call] is Taken.READ}
    return {name: read[name] for name in names if name in read}


def _choices(text: str) -> Iterator[tuple[int, ...]]:
    """Return the types with which an overload is tried, by their numbers."""
    bits = [int(number) for number in _OWN_BITS.findall(text)]
    own = [(one - _FIRST_BITS) // _STEP for one in bits if (one - _FIRST_BITS) % _STEP == 0]
    count = 1 + max((number for number in own if number >= 0), default=0)
    yield from _TRIED.get(count, ())


@dataclass
class Derived:
    """What is written: the types by name, and names by the release that took away or rejects them."""

    changed: dict[str, list[Signature]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    unread: dict[str, set[int]] = field(default_factory=dict)
    unmeasured: dict[str, int] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)


def derive(readers: Sequence[Reader]) -> Derived:
    """Ask the libraries and the readers, the oldest first."""
    names = sorted(frozenset().union(*(reader.names for reader in readers)))
    types = {one.release: ask(one, names) for one in readers if not one.is_clang}
    found = Derived()
    for name in names:
        rows: list[Signature] = []
        for release, own in types.items():
            if name in own:
                row = shape(release, own[name])
                if not rows or str(rows[-1]) != str(row):
                    rows.append(row)
        if len(rows) > 1:
            found.changed[name] = rows
    _measure(found, readers, types)
    _add_unchanged(found, frozenset().union(*types.values()))
    return found


def _measure(
    found: Derived, readers: Sequence[Reader], types: Mapping[int, Mapping[str, Sequence[str]]]
) -> None:
    """Give newer readers what each release had before it changed or went away."""
    releases = list(types)
    own = {reader.release: reader for reader in readers}
    for older, newer in pairwise(releases):
        left = {
            name: words
            for name, words in types[older].items()
            if name not in types[newer] or not _is_same(name, older, newer, types)
        }
        calls = concrete(own[older], left)
        found.unmeasured |= dict.fromkeys(sorted(set(left) - set(calls)), newer)
        line = f"LLVM {older}: {len(left)} changed, {len(calls)} tried"
        print(line, file=sys.stderr, flush=True)  # noqa: T201
        for reader in readers:
            if reader.release > older:
                _judge(found, reader, calls, own[older], own[newer])
            if older < reader.release < newer:
                _settle(found, reader, own[newer], left, types)


def _settle(
    found: Derived,
    between: Reader,
    newer: Reader,
    left: Iterable[str],
    types: Mapping[int, Mapping[str, Sequence[str]]],
) -> None:
    """Let a release without a library tell whether it has the newer types; what it cannot tell is marked."""
    rows = {name: found.changed[name] for name in left if name in found.changed}
    calls = concrete(
        newer, {name: types[newer.release][name] for name in rows if name in types[newer.release]}
    )
    taken = answers(between, list(calls.values()))
    for name, signatures in rows.items():
        place = next((n for n, one in enumerate(signatures) if one.since == newer.release), None)
        if place is None:
            continue
        if name not in calls:
            found.unmeasured[name] = between.release
        elif taken[calls[name]] is Taken.READ:
            signatures[place] = structs.replace(signatures[place], since=between.release)


def _is_same(
    name: str, older: int, newer: int, types: Mapping[int, Mapping[str, Sequence[str]]]
) -> bool:
    was, becomes = (shape(release, types[release][name]) for release in (older, newer))
    return becomes.fits(was.result, was.parameters)


def _judge(
    found: Derived, reader: Reader, calls: Mapping[str, Call], older: Reader, newer: Reader
) -> None:
    for call, taken in answers(reader, list(calls.values()), older).items():
        is_known = call.name in newer.names and call.name in reader.names
        if taken is Taken.FUNCTION and not is_known:
            found.gone.setdefault(call.name, reader.release)
        elif taken is not Taken.READ:
            rejecting = found.unread.setdefault(call.name, set())
            # A later reader that rejects it too says nothing new.
            if not rejecting or min(rejecting) > reader.release:
                rejecting.add(reader.release)


def _add_unchanged(found: Derived, names: Iterable[str]) -> None:
    changed = {*found.changed, *found.gone, *found.unread, *found.unmeasured}
    found.unchanged = {
        name
        for name in names
        if name not in changed and any(prefix in changed for prefix in _prefixes(name))
    }


def _prefixes(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def render(found: Derived, releases: Sequence[int]) -> str:
    """Return the table."""
    lines = [_HEADER.format(releases=", ".join(map(str, releases))) + "changed:"]
    rows = [(one, name) for name, signatures in found.changed.items() for one in signatures]
    for release in sorted({one.since for one, _ in rows}):
        lines.append(f"  {release}: |-")
        own = sorted((name, one) for one, name in rows if one.since == release)
        lines += (f"    {name} {one}" for name, one in own)
    for title, releases_of in (
        ("gone", {name: {since} for name, since in found.gone.items()}),
        ("unread", found.unread),
        ("unmeasured", {name: {since} for name, since in found.unmeasured.items()}),
    ):
        lines.append(f"{title}:{'' if releases_of else ' {}'}")
        for release in sorted(set().union(*releases_of.values())):
            names = (name for name, own in releases_of.items() if release in own)
            lines += [f"  {release}: >-", _words(names)]
    lines += ["unchanged: >-", _words(found.unchanged)]
    return "\n".join(lines) + "\n"


def _words(names: Iterable[str]) -> str:
    text = " ".join(sorted(names))
    indent = "    "
    return textwrap.fill(
        text, 110, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


_HEADER = """\
# The intrinsics whose types changed with a release of LLVM, or which a release has no longer.
# tests/foreign/signatures.py writes this file; do not edit it.
#
# `changed`: the type from a release on; an overload chooses what is written as ?.
# `gone`: names that a release takes for functions. `unread`: names whose older type a release rejects; it upgrades others.
# `unmeasured`: names of which no call of the older type could be made, by the release that has another or none.
# `unchanged`: names that begin with one of these.
# checked: {releases}
# source: the tables in the libraries of these releases, and what their readers make of calls
"""


def main() -> int:
    """Ask; print the table or write it."""
    readers, table = table_arguments(__doc__, TABLE)
    text = render(derive(readers), [reader.release for reader in readers])
    put_table(text, table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
