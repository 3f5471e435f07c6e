"""The matrix: for each module and consumer, the outcome of the real tools and of our checker."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from support.bitcode_corpus import RELEASES
from support.skew_corpus import Case, Module
from support.skew_verdict import Outcome, judge

from mlir_offload.offload.skew.check import Consumer, check_file
from mlir_offload.toolchain.skew.identity import Severity

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "skew" / "matrix.csv"
_HEAD = ("module", "target", "producer", "form", *map(str, RELEASES))


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair: `outcome` is None if the producer's own tools cannot process the module.

    `rules` are those of the errors that the checker finds; `evidence` is not written to the table.
    """

    consumer: int
    outcome: Outcome | None
    rules: tuple[str, ...]
    evidence: str = ""

    def __str__(self) -> str:
        """Return its text in the table."""
        return "+".join(((self.outcome or "none").replace(" ", "_"), *self.rules))


@dataclass(frozen=True, slots=True)
class Row:
    """One file, with its cells for all consumers."""

    module: str
    target: str
    producer: int
    form: str
    cells: tuple[Cell, ...]


def measure(module: Module) -> Iterator[Row]:
    """Run the real tools and the checker."""
    for form in module.case.forms:
        cells = tuple(_measure_cell(module, form, consumer) for consumer in RELEASES)
        yield Row(module.case.name, module.case.target, module.release, form, cells)


def _measure_cell(module: Module, form: str, consumer: int) -> Cell:
    verdict = judge(module, form, consumer, module.folder)
    outcome, evidence = (verdict.outcome, verdict.evidence) if verdict else (None, "")
    return Cell(consumer, outcome, _find_errors(module, form, consumer), evidence)


def recheck(module: Module, rows: Iterable[Row]) -> Iterator[Row]:
    """Run only the checker again on the rows of a module."""
    for row in rows:
        if (row.module, row.producer) == (module.case.name, module.release):
            cells = (
                replace(cell, rules=_find_errors(module, row.form, cell.consumer))
                for cell in row.cells
            )
            yield replace(row, cells=tuple(cells))


def _find_errors(module: Module, form: str, consumer: int) -> tuple[str, ...]:
    """Return the rules of the errors that the checker finds."""
    found = check_file(module.form(form), Consumer(llvm=consumer))
    return tuple(sorted({one.rule for one in found if one.severity is Severity.ERROR}))


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write the table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(_HEAD)
        for row in rows:
            out.writerow((row.module, row.target, row.producer, row.form, *row.cells))


def read_rows(path: Path) -> list[Row]:
    """Read the table."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert tuple(lines[0]) == _HEAD
    return [
        Row(module, target, int(producer), form, tuple(map(_parse_cell, RELEASES, cells)))
        for module, target, producer, form, *cells in lines[1:]
    ]


def _parse_cell(consumer: int, text: str) -> Cell:
    outcome, *rules = text.split("+")
    words = outcome.replace("_", " ")
    return Cell(consumer, None if words == "none" else Outcome(words), tuple(rules))


def sort_rows(rows: Sequence[Row], cases: Iterable[Case]) -> list[Row]:
    """Return the rows in the order of the corpus."""
    order = {case.name: number for number, case in enumerate(cases)}
    return sorted(rows, key=lambda row: (order[row.module], row.producer, row.form))


def quick_part(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Return a few modules with their producers that cover every rule and every kind of result."""
    features: dict[tuple[str, int], set[tuple[object, ...]]] = {}
    for row in rows:
        features.setdefault((row.module, row.producer), set()).update(_features(row))
    wanted = set().union(*features.values())
    chosen: list[tuple[str, int]] = []
    while wanted:
        best = max(features, key=lambda key: len(features[key] & wanted))
        chosen.append(best)
        wanted -= features[best]
    for key in tuple(chosen):
        others = [features[other] for other in chosen if other != key]
        if features[key] <= set().union(*others):
            chosen.remove(key)
    return chosen


def _features(row: Row) -> Iterator[tuple[object, ...]]:
    for cell in row.cells:
        direction = (cell.consumer > row.producer) - (cell.consumer < row.producer)
        yield "result", row.target, cell.outcome
        yield "direction", cell.outcome, direction
        yield "writer", row.module.partition("-")[0], row.target
        for rule in cell.rules:
            yield "rule", rule
