"""The accuracy figures of the checker by writer and reader, and the page about them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from foreign.pair_verdict import Outcome

_HEAD = ("module", "writer", "written by", "read by", "outcome", "rules", "evidence")
_RIGHT = (Outcome.SAME, Outcome.LESS)
_MOST_MISSED = 0.01
_SHOWN = 20


class Standing(StrEnum):
    """The correctness of the checker for a pair."""

    RIGHT = "right"
    CAUGHT = "caught"
    MISSED = "missed"
    FALSE_ALARM = "false alarm"


@dataclass(frozen=True)
class Pair:
    """A module and a reader: the outcome, and the rules of the errors that the checker reports."""

    name: str
    writer: str
    written_by: int
    read_by: int
    outcome: Outcome
    rules: tuple[str, ...]
    evidence: str

    @property
    def standing(self) -> Standing:
        """Return whether the checker is right about the pair."""
        if self.outcome in _RIGHT:
            return Standing.FALSE_ALARM if self.rules else Standing.RIGHT
        return Standing.CAUGHT if self.rules else Standing.MISSED

    def with_rules(self, rules: tuple[str, ...]) -> Pair:
        """Return the pair with new results of the checker."""
        return replace(self, rules=rules)

    def __str__(self) -> str:
        """Return the pair as text."""
        words = f"{self.name} {self.writer} {self.written_by} -> {self.read_by}: {self.outcome}"
        return f"{words} {' '.join(self.rules)} {self.evidence}".rstrip()


def is_within_bounds(pairs: Sequence[Pair]) -> bool:
    """Return whether no wrong pair is missed, few rejected ones are, and no correct one is rejected."""
    counts = _counts(pairs)
    refused = [pair for pair in pairs if pair.outcome in {Outcome.REFUSED, Outcome.BACK_END}]
    missed = sum(pair.standing is Standing.MISSED for pair in refused)
    return (
        counts[Outcome.WRONG, Standing.MISSED] == 0
        and missed <= _MOST_MISSED * len(refused)
        and not any(pair.standing is Standing.FALSE_ALARM for pair in pairs)
    )


def _counts(pairs: Iterable[Pair]) -> Counter[tuple[Outcome, Standing]]:
    return Counter((pair.outcome, pair.standing) for pair in pairs)


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write the table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(_HEAD)
        for one in pairs:
            words = (one.name, one.writer, one.written_by, one.read_by, one.outcome)
            out.writerow((*words, " ".join(one.rules), one.evidence))


def read_pairs(path: Path) -> list[Pair]:
    """Read the table."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    assert tuple(head) == _HEAD
    return [
        Pair(name, writer, int(by), int(to), Outcome(outcome), tuple(rules.split()), evidence)
        for name, writer, by, to, outcome, rules, evidence in lines
    ]


def render_page(pairs: Sequence[Pair]) -> str:
    """Return the page."""
    return _TEXT.format(
        oldest=min(pair.read_by for pair in pairs),
        newest=max(pair.read_by for pair in pairs),
        modules=len({(pair.name, pair.writer, pair.written_by) for pair in pairs}),
        pairs=len(pairs),
        checker="\n".join(_checker(pairs)),
        who="\n".join(_who(pairs)),
        rules="\n".join(_rules(pairs)),
        exceptions="\n".join(_exceptions(pairs)),
    )


def _checker(pairs: Sequence[Pair]) -> Iterator[str]:
    counts = _counts(pairs)
    yield "| result of the reader | pairs | no error | caught | missed | false alarm |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for outcome in Outcome:
        row = [counts[outcome, standing] for standing in Standing]
        yield f"| {outcome} | {sum(row)} | {' | '.join(map(str, row))} |"


def _who(pairs: Sequence[Pair]) -> Iterator[str]:
    readers = sorted({pair.read_by for pair in pairs})
    yield f"| written by | {' | '.join(f'to {reader}' for reader in readers)} |"
    yield f"| --- |{' ---: |' * len(readers)}"
    for writer in sorted({(pair.writer, pair.written_by) for pair in pairs}):
        cells = []
        for reader in readers:
            own = [p for p in pairs if (p.writer, p.written_by) == writer and p.read_by == reader]
            wrong = sum(pair.outcome is Outcome.WRONG for pair in own)
            right = sum(pair.outcome in _RIGHT for pair in own)
            cells.append(f"{right} of {len(own)}{f', {wrong} wrong' if wrong else ''}")
        yield f"| {writer[0]} {writer[1]} | {' | '.join(cells)} |"


def _rules(pairs: Sequence[Pair]) -> Iterator[str]:
    found = Counter((rule, pair.outcome) for pair in pairs for rule in pair.rules)
    yield "| rule | of wrong pairs | of rejected pairs |"
    yield "| --- | ---: | ---: |"
    for rule in sorted({rule for rule, _ in found}):
        refused = found[rule, Outcome.REFUSED] + found[rule, Outcome.BACK_END]
        yield f"| {rule} | {found[rule, Outcome.WRONG]} | {refused} |"


def _exceptions(pairs: Sequence[Pair]) -> Iterator[str]:
    found = [p for p in pairs if p.standing in {Standing.MISSED, Standing.FALSE_ALARM}]
    if not found:
        yield "None."
    for pair in found[:_SHOWN]:
        yield f"* {pair.standing}: `{pair}`"
    if len(found) > _SHOWN:
        yield f"* and {len(found) - _SHOWN} more in `tests/golden/skew/pairs.csv`"


_TEXT = """\
# Compatibility checks on real code

This page compares what `mlir-offload check` reports with what the readers of LLVM {oldest} to {newest} do, on {pairs} pairs of
a module and a reader. `tests/foreign/pairs.py` writes this page; do not edit it.

    python tests/foreign/pairs.py --releases=14,15,16,17,18,19,20,21,22,23 --root=23=DIR --write

The command fetches the sources and the readers that are not installed, except LLVM 23, which must be in DIR. It takes
about ten minutes on two processors. The figures are from one run. It is not part of the test suite. `--only=REGEX`
selects modules, `--checker` reruns only the checker, `--show` prints every missed pair and every false alarm.

## Modules

The {modules} modules are real code: the sources of bzip2, cJSON, LZ4, Lua, zlib and TinyXML-2 compiled by clang 15 to
23, functions with vector and matrix instructions of RISC-V, AArch64 and x86-64 compiled by the same releases, crates
compiled by rustc, files of Zig's library written by Zig's own bitcode writer, CUDA and HIP kernels compiled by clang, and
the examples of mlir-offload lowered by MLIR 19 and 22 for NVIDIA, AMD and the host. They are compiled with and without
optimization, debug information and ThinLTO summaries.

## Oracle

The expected results do not come from the tables of the checker:

* The reader and the release that wrote the module both read it and write it again. If the reader fails, the pair is
  *rejected*.
* The newest release reads both results and prints them. If an instruction, a constant, an attribute or a metadata
  node differs, the pair is *wrong*. If only optimization hints are missing (`nuw`, `disjoint`), the pair is *less
  promised*, which is correct.
* The verifier of the reader lists the called intrinsics that it supports. A pair with another intrinsic is *wrong*.
* The back end of the reader compiles device code, if that of the writer does. Kernels, parameters, launch bounds,
  barriers and the code object version must be those of the newest release, or of the release that wrote the module.

Host code is not compiled or executed, and data layouts are not compared. The [matrix](ir-compatibility.md) covers layouts
of `i128` (BC018, BC024) and back ends for the host.

## Figures

{checker}

The checker must report an error for exactly the pairs that are not *same* or *less promised*.

### Correctly read pairs

{who}

### Rules

{rules}

### Exceptions

{exceptions}
"""
