"""Derive the first LLVM release that supports each intrinsic, by testing the readers of all releases.

Each reader gets a module that calls every name with a signature that no intrinsic has. The verifier lists
those that the reader treats as intrinsics; it silently treats the others as functions. The names come from
the readers' binaries.

usage: python tests/foreign/intrinsics.py [--releases=14,15,...] [--root=N=DIR] [--write]

It writes toolchain/data/intrinsics.yaml. Releases that are not installed are downloaded from PyPI.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from foreign.reader import Reader, put_table, table_arguments  # noqa: E402

TABLE = ROOT / "toolchain" / "data" / "intrinsics.yaml"
# The verifier lists the function (`ptr @llvm.abs`; LLVM 14 has typed pointers), or its call.
_KNOWN = re.compile(r"^(?:\S.*|  %v\d+ = call .*)@(llvm\.[\w.]+)", re.MULTILINE)
_OVERLOAD = ".p0"
# The type suffixes in the name of an overload (Intrinsic::getName).
_TYPES = re.compile(r"(?:\.(?:nx)?(?:v\d+)?(?:[fi]\d+|bf16|p\d+|s_\w+|sl_\w+|a\d+\w+))+")
# Readers give some overloads the types of the call: [7 x i3] and [3 x i5].
_REMANGLED = re.compile(r"(?:\.a7i3|\.a3i5)+$")
# An intrinsic that every reader supports.
_CANARY = "llvm.trap"


def known_names(reader: Reader, names: Sequence[str]) -> frozenset[str]:
    """Return the names that a reader treats as intrinsics, including those that crash it."""
    found = _listed(reader, names)
    if _CANARY in found:
        return found - {_CANARY}
    # Upgrading some intrinsics crashes if the call does not have the expected old types.
    if len(names) == 1:
        return frozenset(names)
    half = len(names) // 2
    return known_names(reader, names[:half]) | known_names(reader, names[half:])


def _listed(reader: Reader, names: Sequence[str]) -> frozenset[str]:
    answer = reader.print(_calls([*names, _CANARY]).encode())
    return frozenset(_KNOWN.findall(answer.message))


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The first release in which each name is an intrinsic, and in which it accepts a type suffix.

    `taken` maps names to the other intrinsic that an older reader treats them as.
    """

    first: Mapping[str, int]
    overloaded: Mapping[str, int]
    taken: Mapping[str, str]


def _calls(names: list[str]) -> str:
    """Return a module that calls each name with types that no intrinsic accepts."""
    lines = [f"declare [7 x i3] @{name}([3 x i5])" for name in names]
    lines += ["define void @calls() {"]
    lines += [f"  %v{i} = call [7 x i3] @{name}([3 x i5] poison)" for i, name in enumerate(names)]
    return "\n".join([*lines, "  ret void", "}", ""])


def derive(readers: Sequence[Reader]) -> Knowledge:
    """Test all names with all readers, the oldest first."""
    names = sorted(frozenset().union(*(reader.names for reader in readers)) - {_CANARY})
    known: set[str] = set()
    overloaded: dict[str, int] = {}
    taken: dict[str, str] = {}
    readers = sorted(readers, key=lambda one: one.release)
    for reader in readers:
        suffixed = known_names(reader, [f"{name}{_OVERLOAD}" for name in names])
        bases = {_REMANGLED.sub("", name).removesuffix(_OVERLOAD) for name in suffixed}
        takes_types = bases & reader.names
        listed = known_names(reader, names)
        for name in (listed & reader.names) | takes_types:
            if not any(p in takes_types and _TYPES.fullmatch(name, len(p)) for p in prefixes(name)):
                known.add(name)
                if name in takes_types:
                    overloaded.setdefault(name, reader.release)
        # A name that the binary lacks is resolved to a shorter one, so it is misread.
        for name in listed - reader.names:
            other = next((prefix for prefix in prefixes(name) if prefix in takes_types), "")
            if other and not _TYPES.fullmatch(name, len(other)):
                taken[name] = other
    # Not the first release that lists it: an upgrade for other types may hide a name from the verifier.
    first = {name: next(r.release for r in readers if name in r.names) for name in sorted(known)}
    return Knowledge(first, overloaded, {name: taken[name] for name in sorted(taken)})


def render(knowledge: Knowledge, readers: Sequence[Reader]) -> str:
    """Return the table, with the names that are newer than the oldest reader."""
    releases = sorted(reader.release for reader in readers)
    oldest = releases[0]
    changed = {
        name: since for name, since in knowledge.overloaded.items() if since > knowledge.first[name]
    }
    newer = {name: since for name, since in knowledge.first.items() if since > oldest}
    # Without rows of their own, these would be treated as overloads of a newer, shorter name.
    shadowed = {
        name: oldest
        for name, since in knowledge.first.items()
        if since == oldest
        and any(prefix in newer or prefix in changed for prefix in prefixes(name))
    }
    newer |= shadowed
    return (
        _HEADER.format(releases=", ".join(map(str, releases)), oldest=oldest)
        + _rows("first", newer)
        + _rows("overloaded", _suffixed(knowledge, newer) | changed)
        + "taken:\n"
        + "".join(f"  {name}: {other}\n" for name, other in knowledge.taken.items())
    )


def _suffixed(knowledge: Knowledge, newer: Mapping[str, int]) -> dict[str, int]:
    return {name: knowledge.overloaded[name] for name in newer if name in knowledge.overloaded}


def prefixes(name: str) -> Iterable[str]:
    """Yield the prefixes of a name before each dot, the longest first."""
    end = name.rfind(".")
    while end > len("llvm"):
        yield name[:end]
        end = name.rfind(".", 0, end)


def _rows(title: str, names: Mapping[str, int]) -> str:
    lines = [f"{title}:"]
    for release in sorted(set(names.values())):
        text = " ".join(sorted(name for name, since in names.items() if since == release))
        lines.append(f"  {release}: >-")
        lines.append(
            textwrap.fill(
                text,
                110,
                initial_indent="    ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(lines) + "\n"


_HEADER = """\
# The first LLVM release with an intrinsic. An older release treats it as a function and calls it.
# tests/foreign/intrinsics.py writes this file; do not edit it.
#
# `first`: names that LLVM {oldest} does not have, and older names that begin with such a name.
# `overloaded`: names in `first` with a type suffix, and older names that have one only since that release.
# `taken`: the intrinsic that a reader without the name uses instead, because it is overloaded and a prefix of the name.
# checked: {releases}
# source: the names in the binaries of these releases that their verifiers treat as intrinsics
"""


def main() -> int:
    """Test the readers; print the table or write it."""
    readers, table = table_arguments(__doc__, TABLE)
    text = render(derive(readers), readers)
    put_table(text, table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
