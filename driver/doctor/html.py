"""The report of `mlir-offload doctor` as a self-contained HTML page without scripts.

Output of tools is escaped, and the page's content security policy allows no external resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from mlir_offload.driver import __version__
from mlir_offload.driver.doctor.plan import Combination
from mlir_offload.driver.doctor.report import DoctorReport, summary
from mlir_offload.driver.doctor.trial import Cell, Trial, Verdict
from mlir_offload.driver.message.escape import shown
from mlir_offload.driver.system.workspace import open_output
from mlir_offload.toolchain.byte_view import write_all
from mlir_offload.toolchain.skew.identity import ToolIdentity

_DATA = Path(__file__).parents[1] / "data"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_CLASSES = {
    Verdict.WORKS: "good",
    Verdict.LINKS: "good",
    Verdict.REFUSED: "refused",
    Verdict.INCOMPLETE: "refused",
}
_BAD = "bad"


def write_html(report: DoctorReport, output: Path) -> None:
    """Write the page. Raises InputOutputError."""
    with open_output(output) as descriptor:
        write_all(render_html(report).encode(errors="replace"), descriptor)


def render_html(report: DoctorReport) -> str:
    """Return the page."""
    return Template((_DATA / "doctor.html").read_text(encoding="utf-8")).substitute(
        policy=_POLICY,
        style=(_DATA / "doctor.css").read_text(encoding="utf-8"),
        summary=_safe(summary(report)),
        state=_BAD if report.exit_status else "good",
        matrices="".join(_matrices(report.cells)),
        findings=_findings(report),
        install=_install(report),
        trials=_table(
            ("", "combination", "mlir-offload", "clang alone", "through", "why, and what to do"),
            (_trial_row(number, cell) for number, cell in enumerate(report.cells)),
        ),
        tools=_table(
            ("installation", "part", "says", "writes", "found out"), map(_tool_row, report.tools)
        ),
        generator=f"mlir-offload {__version__}",
    )


def _safe(text: object) -> str:
    return escape(shown(str(text)), quote=True)


def _matrices(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a grid for each kind and SDK: a row per lowering release, a column per linking release."""
    groups: dict[str, dict[tuple[str, str], int]] = {}
    for number, cell in enumerate(cells):
        one = cell.combination
        places = groups.setdefault(_heading(one), {})
        places[one.producer_name, f"LLVM {one.consumer.version.major}"] = number
    for heading, places in groups.items():
        yield f"<h3>{_safe(heading)}</h3>{_grid(places, cells)}"


def _heading(one: Combination) -> str:
    return f"{one.kind}, {one.arch}" + (f", {one.sdk.name}" if one.sdk else "")


def _grid(places: dict[tuple[str, str], int], cells: Sequence[Cell]) -> str:
    lowering = list(dict.fromkeys(producer for producer, _ in places))
    linking = list(dict.fromkeys(consumer for _, consumer in places))
    head = "".join(f"<th scope=col>{_safe(consumer)} links</th>" for consumer in linking)
    rows = "".join(
        f"<tr><th scope=row>{_safe(producer)} lowers</th>"
        + "".join(_square(places.get((producer, consumer)), cells) for consumer in linking)
        + "</tr>"
        for producer in lowering
    )
    return f"<div class=scroll><table class=grid><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _square(number: int | None, cells: Sequence[Cell]) -> str:
    if number is None:
        return "<td></td>"
    cell = cells[number]
    star = " ★" if cell.combination.is_default else ""
    through = f"<small>through {_safe(', '.join(cell.adapters))}</small>" if cell.adapters else ""
    alone = f"<small>clang alone: {_word(cell.alone)}</small>" if cell.alone else ""
    verdict = cell.ours.verdict
    return (
        f"<td class={_class(verdict)}><a href=#trial{number}>{_safe(verdict)}{star}</a>"
        f"{through}{alone}</td>"
    )


def _class(verdict: Verdict) -> str:
    return _CLASSES.get(verdict, _BAD)


def _word(trial: Trial | None) -> str:
    if trial is None:
        return "not tried"
    return f"<span class={_class(trial.verdict)}>{_safe(trial.verdict)}</span>"


def _trial_row(number: int, cell: Cell) -> str:
    ours, alone = cell.ours, cell.alone
    why = [_reason("", ours), *([_reason("clang alone: ", alone)] if alone else [])]
    star = "★" if cell.combination.is_default else ""
    columns = (
        star,
        _safe(cell.combination.label),
        _word(ours),
        _word(alone),
        _safe(", ".join(cell.adapters)),
        "".join(why),
    )
    return f"<tr id=trial{number}>{''.join(f'<td>{text}</td>' for text in columns)}</tr>"


def _reason(prefix: str, trial: Trial) -> str:
    lines = [prefix + trial.reason if trial.reason else "", trial.hint]
    text = "".join(f"<div>{_safe(line)}</div>" for line in lines if line)
    return f"{text}<code>{_safe(trial.command)}</code>" if trial.command else text


def _tool_row(tool: ToolIdentity) -> str:
    facts = "".join(
        f"<div>{_safe(fact.name)} {_safe(fact.value)} <small>{_safe(fact.evidence)}</small></div>"
        for fact in tool.facts
    )
    problem = f"<div class=bad>{_safe(tool.problem)}</div>" if tool.problem else ""
    words = (tool.group, tool.name, tool.said, tool.written)
    columns = (*map(_safe, words), facts + problem)
    return f"<tr>{''.join(f'<td>{text}</td>' for text in columns)}</tr>"


def _findings(report: DoctorReport) -> str:
    if not report.findings:
        return "<p class=good>Every tool is what it says, and nothing prevents a build.</p>"
    items = "".join(
        f"<li class={finding.severity}><b>{_safe(finding.rule)}</b> "
        f"{_safe(finding.location)}: {_safe(finding.message)}<div>{_safe(finding.hint)}</div></li>"
        for finding in report.findings
    )
    return f"<ul class=findings>{items}</ul>"


def _install(report: DoctorReport) -> str:
    if not report.to_install:
        return "<p class=good>Nothing is missing.</p>"
    items = "".join(
        f"<li>{_safe(one.part)}, for {_safe(one.purpose)}{' (optional)' if one.is_optional else ''}:"
        f" <code>{_safe(one.command)}</code></li>"
        for one in report.to_install
    )
    return f"<ul>{items}</ul>"


def _table(headings: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th scope=col>{heading}</th>" for heading in headings)
    body = "\n".join(rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
