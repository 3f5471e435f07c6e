"""Evaluate the matrix: how often the checker is right, and the tables of the documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from support.bitcode_corpus import RELEASES
from support.skew_matrix import Cell, Row
from support.skew_verdict import Outcome

_BEGIN, _END = "<!-- figures: tests/bench/skew_matrix.py -->", "<!-- end of the figures -->"
_RIGHT = (Outcome.SAME, Outcome.DIFFERS, Outcome.OTHER_ABI)
_MEANINGS = {
    Outcome.SAME: "accepted, the same",
    Outcome.DIFFERS: "accepted, other instructions",
    Outcome.OTHER_ABI: "accepted, another version of AMD's code object, of which nothing is read",
    Outcome.READER: "rejected by the reader or the verifier",
    Outcome.BACK_END: "rejected by the back end",
    Outcome.LATER: "rejected by ptxas or the linker",
    Outcome.WRONG: "accepted, and wrong",
}


class Standing(StrEnum):
    """The result of the checker for a pair of module and consumer."""

    RIGHT = "right"
    CAUGHT = "caught"
    # The consumer's own reader reports an error, and the checker runs it in such cases.
    READER = "left to the reader"
    MISSED = "missed"
    FALSE_ALARM = "false alarm"


def standing(cell: Cell) -> Standing | None:
    """Return the result of the checker for a pair; None if there is no verdict."""
    if cell.outcome is None:
        return None
    if cell.outcome in _RIGHT:
        return Standing.FALSE_ALARM if cell.rules else Standing.RIGHT
    if cell.rules:
        return Standing.CAUGHT
    return Standing.READER if cell.outcome is Outcome.READER else Standing.MISSED


def replace_figures(document: str, rows: Sequence[Row]) -> str:
    """Return the document with the figures of these rows."""
    figures = f"{_BEGIN}\n\n{render_figures(rows)}\n\n{_END}"
    return re.sub(
        f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: figures, document, flags=re.DOTALL
    )


def render_figures(rows: Sequence[Row]) -> str:
    """Return all tables."""
    parts = {
        "Results of the checker": _render_standings,
        "Missed pairs and false alarms": _render_exceptions,
        "Correctly read pairs": _render_majors,
        "Rules": _render_rules,
    }
    return "\n\n".join(f"### {title}\n\n{part(rows)}" for title, part in parts.items())


def _render_standings(rows: Sequence[Row]) -> str:
    counts = Counter((cell.outcome, standing(cell)) for _, cell in _pairs(rows))
    kinds = (Standing.CAUGHT, Standing.READER, Standing.MISSED, Standing.FALSE_ALARM)
    totals = Counter(cell.outcome for _, cell in _pairs(rows))
    numbers = {
        outcome: (totals[outcome], *(counts[outcome, kind] for kind in kinds))
        for outcome in _MEANINGS
    }
    lines = [(meaning, *numbers[outcome]) for outcome, meaning in _MEANINGS.items()]
    sums = map(sum, zip(*numbers.values(), strict=True))
    return _table(("result of the tools", "pairs", *kinds), [*lines, ("all", *sums)])


def _render_exceptions(rows: Sequence[Row]) -> str:
    """Return the list of modules that are missed or false alarms."""
    found: dict[tuple[str, str, str, int], list[str]] = {}
    for row, cell in _pairs(rows):
        how = standing(cell)
        if how in {Standing.MISSED, Standing.FALSE_ALARM}:
            key = (how, str(cell.outcome), f"{row.module}.{row.form}", row.producer)
            found.setdefault(key, []).append(str(cell.consumer))
    lines = [
        (name, f"{one} to {', '.join(to)}", how, what)
        for (how, what, name, one), to in found.items()
    ]
    return _table(("module", "LLVM", "checker", "tools"), lines)


def _render_majors(rows: Sequence[Row]) -> str:
    """Return the table of accepted and correct modules, by producer and consumer."""
    makers = sorted({(row.module.partition("-")[0], row.producer) for row in rows})
    lines = []
    for maker, producer in makers:
        own = [
            row for row in rows if (row.module.partition("-")[0], row.producer) == (maker, producer)
        ]
        lines.append((f"{maker} {producer}", *(_accepted(own, consumer) for consumer in RELEASES)))
    return _table(("producer", *(f"to {release}" for release in RELEASES)), lines)


def _accepted(rows: Sequence[Row], consumer: int) -> str:
    outcomes = Counter(cell.outcome for _, cell in _pairs(rows) if cell.consumer == consumer)
    right, wrong = sum(outcomes[one] for one in _RIGHT), outcomes[Outcome.WRONG]
    return f"{right} of {outcomes.total()}" + (f", {wrong} wrong" if wrong else "")


def _render_rules(rows: Sequence[Row]) -> str:
    silent, loud = Counter[str](), Counter[str]()
    for _, cell in _pairs(rows):
        (silent if cell.outcome is Outcome.WRONG else loud).update(cell.rules)
    lines = [(rule, silent[rule], loud[rule]) for rule in sorted({*silent, *loud})]
    return _table(("rule", "of pairs that are silently wrong", "of others"), lines)


def _pairs(rows: Iterable[Row]) -> Iterator[tuple[Row, Cell]]:
    return ((row, cell) for row in rows for cell in row.cells if cell.outcome is not None)


def _table(head: Sequence[object], lines: Iterable[Sequence[object]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, rule, *lines))
