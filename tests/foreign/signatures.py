"""Derive the LLVM releases that changed or removed an intrinsic, and how newer readers treat its old type.

usage: python tests/foreign/signatures.py [--releases=14,15,...] [--root=N=DIR] [--write]

The types come from the libraries of the releases (tests/foreign/signature_probe.py). Newer readers get a call
with each type that changed. It writes toolchain/data/intrinsic_signatures.yaml.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".importroot")]

from foreign.intrinsic_call import Call, DebugCall, Taken, answers  # noqa: E402
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
# The widths of an overload's selected types in the first answer of the probe.
_OWN_BITS = re.compile(r"\bi(\d+)\b")
_FIRST_BITS, _STEP = 30, 4
# The form of a type in that answer that an overload selects as a whole.
_CHOSEN = re.compile(r"<6 x i(\d+)>")
# The overloads that are tried, by their number of types: indices in TYPES, common types first.
_SCALABLE = (13, 14)
# Types of several registers: each has as many parts of type 16.
_SEVERAL = (17, 18, 19)
_TRIED = {
    1: tuple((one,) for one in range(len(TYPES))),
    2: (
        *((one, other) for one in (0, 1, 3, 4, 6, 7, 8, 13, 14) for other in (one, 0, 1, 6)),
        *product(_SEVERAL, (15, 16)),
        (16, 17),
        (7, 20),
        (8, 20),
    ),
    3: tuple(
        (one, *rest)
        for one in (0, 3, 6, 4, 7, 8, *_SCALABLE)
        for rest in ((6, one), (one, one), (one, 1), (1, 1), (6, 1), (1, 6))
    ),
    # Most of these are for RISC-V vectors: vectors, elements, pointers, masks, and the length as an integer.
    4: (
        *((one, *rest) for one in _SCALABLE for rest in permutations((1, 6, 15))),
        *((one, 6, other, 1) for one in _SCALABLE for other in _SCALABLE),
        *((one, *rest, 1) for one in _SCALABLE for rest in product((0, 1, 3, 13, 14), repeat=2)),
    ),
    5: tuple((one, 6, other, 15, 1) for one in _SCALABLE for other in _SCALABLE),
}
_DEBUG = "llvm.dbg."
# The number of calls of an overload that are tried, with first types of different kinds.
_MOST = 16

Shapes = Mapping[str, Signature]


def ask(reader: Reader, requests: Iterable[str]) -> dict[str, list[str]]:
    """Return the types of each request in the library of a reader, which must not be that of a wheel."""
    python = os.path.realpath(sys.executable)
    command = (*reader.loader, python, str(_PROBE), str(reader.binary))
    text = "\n".join(requests)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {request: types for request, *types in lines}


def shape(since: int, types: Sequence[str]) -> Signature:
    """Return a type with placeholders, in order, for the parts that differ between two overloads."""
    first, last = split_signature(types[0]), split_signature(types[-1])
    own: dict[str, str] = {}

    def part(one: str, other: str) -> str:
        if one == other:
            return one
        bits = _CHOSEN.fullmatch(one)
        is_whole = bits is not None and _is_own(int(bits[1]))
        return own.setdefault(one, f"{OPEN}{len(own)}") if is_whole else OPEN

    pairs = zip(first[1], last[1], strict=True)
    return Signature(since, part(first[0], last[0]), tuple(part(*pair) for pair in pairs))


def concrete(reader: Reader, names: Mapping[str, Sequence[str]]) -> dict[str, list[Call]]:
    """Return, for each name, calls with different types that a reader accepts; empty if none is found."""
    requests = {
        f"{name} {' '.join(map(str, numbers)) or '-'}": name
        for name, types in names.items()
        for numbers in (_choices(types[0]) if len(types) > 1 else ((),))
    }
    found: dict[str, dict[tuple[object, ...], Call]] = {
        name: {(): DebugCall(name, types[0])} if name.startswith(_DEBUG) else {}
        for name, types in names.items()
    }
    for request, (signature, spelled, *passed) in ask(reader, requests).items():
        name, *numbers = request.split()
        for one in passed:
            call = Call(name, signature, spelled.removeprefix(name), one)
            found[name].setdefault((*_kind(numbers), one), call)
    read: dict[str, list[Call]] = {name: [] for name in names}
    # The parser may reject what the library accepts; therefore test the next call of all names together.
    for rank in range(max(map(len, found.values()), default=0)):
        calls = [
            [*own.values()][rank]
            for name, own in found.items()
            if rank < len(own) and len(read[name]) < _MOST
        ]
        for call, taken in answers(reader, calls).items():
            if taken is Taken.READ:
                read[call.name].append(call)
    return read


def _kind(numbers: Sequence[str]) -> Sequence[object]:
    """Return the properties of an overload's types; one overload per combination is tried."""
    if numbers[0] == "-" or int(numbers[0]) in _SEVERAL:
        return numbers
    size, element = TYPES[int(numbers[0])]
    return size > 0, size < 0, element == "ptr", element.startswith("i"), element == "i8"


def _choices(text: str) -> Iterator[tuple[int, ...]]:
    """Yield the overloads to try, as indices in TYPES."""
    bits = [int(number) for number in _OWN_BITS.findall(text)]
    own = [(one - _FIRST_BITS) // _STEP for one in bits if _is_own(one)]
    yield from _TRIED.get(1 + max(own, default=0), ())


def _is_own(bits: int) -> bool:
    """Return whether a width belongs to a selected type, and not to a type that is derived from it."""
    return bits >= _FIRST_BITS and (bits - _FIRST_BITS) % _STEP == 0


@dataclass
class Derived:
    """The contents of the table: types by name, and names by the release that removed or rejects them."""

    changed: dict[str, list[Signature]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    unread: dict[str, set[int]] = field(default_factory=dict)
    unmeasured: dict[str, int] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)


def derive(readers: Sequence[Reader]) -> Derived:
    """Test the libraries and the readers, the oldest first."""
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
    """Pass newer readers the calls of each release that later changed or were removed."""
    releases = list(types)
    own = {reader.release: reader for reader in readers}
    for older, newer in pairwise(releases):
        left = {
            name: words
            for name, words in types[older].items()
            if name not in types[newer] or not _is_same(name, older, newer, types)
        }
        calls = concrete(own[older], left)
        untried = sorted(name for name, tried in calls.items() if not tried)
        found.unmeasured |= dict.fromkeys(untried, newer)
        line = f"LLVM {older}: {len(left)} changed, {len(left) - len(untried)} tried"
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
    left: Collection[str],
    types: Mapping[int, Mapping[str, Sequence[str]]],
) -> None:
    """Test a release without a library for the newer types; mark the names for which no test is possible."""
    places = {
        name: place
        for name, signatures in found.changed.items()
        for place, one in enumerate(signatures)
        if place and one.since == newer.release
    }
    calls = concrete(newer, {name: types[newer.release][name] for name in places})
    for name, place in places.items():
        if not calls[name] and name in left:
            found.unmeasured[name] = between.release
        # A call that also matches the older type does not distinguish the releases.
        older = found.changed[name][place - 1]
        calls[name] = [
            one for one in calls[name] if not older.fits(*split_signature(one.signature))
        ]
    for name, taken in _reading(between, calls).items():
        if taken is Taken.READ:
            rows = found.changed[name]
            rows[places[name]] = structs.replace(rows[places[name]], since=between.release)


def _reading(
    reader: Reader, calls: Mapping[str, Sequence[Call]], writer: Reader | None = None
) -> dict[str, Taken]:
    """Return how a reader treats each name.

    It accepts a name if it accepts any of the calls: an upgrade handles the types that real code has, and
    verifiers accept others.
    """
    found: dict[str, Taken] = {}
    for rank in range(_MOST):
        tried = [
            own[rank]
            for name, own in calls.items()
            if rank < len(own) and found.get(name) is not Taken.READ
        ]
        for call, taken in answers(reader, tried, writer).items():
            if taken is Taken.READ:
                found[call.name] = taken
            else:
                found.setdefault(call.name, taken)
    return found


def _is_same(
    name: str, older: int, newer: int, types: Mapping[int, Mapping[str, Sequence[str]]]
) -> bool:
    """Return whether a newer type equals the older one, or includes it as an overload, as far as types show."""
    was, becomes = (shape(release, types[release][name]) for release in (older, newer))
    is_derived = any(OPEN in {one.result, *one.parameters} for one in (was, becomes))
    return str(was) == str(becomes) or (not is_derived and becomes.fits(was.result, was.parameters))


def _judge(
    found: Derived,
    reader: Reader,
    calls: Mapping[str, Sequence[Call]],
    older: Reader,
    newer: Reader,
) -> None:
    for name, taken in _reading(reader, calls, older).items():
        is_known = name in newer.names and name in reader.names
        if taken is Taken.FUNCTION and not is_known:
            found.gone.setdefault(name, reader.release)
        elif taken is not Taken.READ:
            rejecting = found.unread.setdefault(name, set())
            # A later reader that also rejects it adds no information; a reader that rejects a later type
            # does.
            if not any(older.release < one <= reader.release for one in rejecting):
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
# The intrinsics whose types changed with a release of LLVM, or which a release removed.
# tests/foreign/signatures.py writes this file; do not edit it.
#
# `changed`: the type from a release on. ?0 and ?1 are overloaded types, each the same everywhere; ? is derived from them.
# `gone`: names that a release treats as functions. `unread`: names whose older type a release rejects; it upgrades others.
# `unmeasured`: names whose older type could not be tested, by the release that changed or removed them.
# `unchanged`: names that did not change, although they begin with one of these.
# checked: {releases}
# source: the tables in the libraries of these releases, and calls that their readers read
"""


def main() -> int:
    """Test the readers; print the table or write it."""
    readers, table = table_arguments(__doc__, TABLE)
    text = render(derive(readers), [reader.release for reader in readers])
    put_table(text, table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
