"""A self-contained HTML page with a timeline of the steps of a build.

Text from files and tools is escaped, and the page's content security policy allows only its own script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template

from mlir_offload.driver import __version__
from mlir_offload.driver.project.planned_step import (
    ARCHIVE,
    DEVICE,
    JOIN,
    LINK,
    MODULE,
    SOURCE,
    SPLIT,
)
from mlir_offload.driver.project.report import BuildRecord, count_outcomes, is_timed, write_text
from mlir_offload.driver.project.run import StepOutcome, StepResult

_DATA = Path(__file__).parents[1] / "data"
_KINDS = (MODULE, SPLIT, DEVICE, JOIN, SOURCE, LINK, ARCHIVE)
_HEADS = ("step", "outcome", "start (s)", "time (s)", "lane")
_LANE_PIXELS = 26
_FEW_FAILURES = 20


def write_page(record: BuildRecord, output: Path) -> None:
    """Write the page. Raises InputOutputError."""
    write_text(render_page(record), output)


def render_page(record: BuildRecord) -> str:
    """Return the page for a build."""
    script = (_DATA / "project.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    numbered = list(enumerate(record.results))
    began = datetime.fromtimestamp(record.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lanes = max((result.lane for result in record.results if is_timed(result)), default=0) + 1
    return Template((_DATA / "project.html").read_text(encoding="utf-8")).substitute(
        title=_safe(record.manifest),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        style=(_DATA / "project.css").read_text(encoding="utf-8"),
        script=script,
        began=began,
        facts="".join(_facts(record)),
        failures="".join(_failures(record)),
        height=lanes * _LANE_PIXELS + 2,
        bars="".join(_bar(number, result, record.duration_s) for number, result in numbered),
        legend="".join(f'<li><i class="{kind}"></i>{kind}</li>' for kind in _KINDS),
        heads="".join(
            f'<th scope="col"><button type="button">{head}</button></th>' for head in _HEADS
        ),
        rows="".join(_row(number, result) for number, result in numbered),
        generator=f"mlir-offload {__version__}",
    )


def _safe(text: object) -> str:
    printable = str(text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return escape(printable, quote=True)


def _facts(record: BuildRecord) -> Iterator[str]:
    counts = count_outcomes(record.results)
    busy = sum(result.duration_s for result in record.results)
    facts = [("time", f"{record.duration_s:.2f} s")]
    facts += [(outcome.value, f"{counts[outcome]:,}") for outcome in StepOutcome]
    facts.append(("steps at a time, on average", f"{busy / max(record.duration_s, 1e-9):.2f}"))
    for name, value in facts:
        yield f"<div><dt>{name}</dt><dd>{value}</dd></div>"


def _failures(record: BuildRecord) -> Iterator[str]:
    failed = [result for result in record.results if result.outcome is StepOutcome.FAILED]
    if failed:
        yield "<h2>Failures</h2>"
    for result in failed[:_FEW_FAILURES]:
        yield f"{_safe(result.step.label)}<pre>{_safe(result.message.rstrip())}</pre>"
    if len(failed) > _FEW_FAILURES:
        yield f"<p>and {len(failed) - _FEW_FAILURES} more: see the table</p>"


def _bar(number: int, result: StepResult, total_s: float) -> str:
    if not is_timed(result):
        return ""
    percent = 100 / max(total_s, 1e-9)
    place = (
        f"--x:{result.start_s * percent:.4f};--w:{result.duration_s * percent:.4f};"
        f"--lane:{result.lane}"
    )
    failed = " failed" if result.outcome is StepOutcome.FAILED else ""
    title = f"{result.step.label}: {result.duration_s:.3f} s"
    return (
        f'<button type="button" class="s {result.step.kind}{failed}" data-n="{number}"'
        f' style="{place}" title="{_safe(title)}"></button>\n'
    )


def _row(number: int, result: StepResult) -> str:
    times = (
        f'<td class="n" data-v="{value:.6f}">{f"{value:.3f}" if is_timed(result) else ""}</td>'
        for value in (result.start_s, result.duration_s)
    )
    lane = f'<td class="n" data-v="{result.lane}">{result.lane if is_timed(result) else ""}</td>'
    words = f"<td>{_safe(result.step.label)}</td><td>{result.outcome.value}</td>"
    return (
        f'<tr class="{result.outcome.value}" data-n="{number}">{words}{"".join(times)}{lane}</tr>\n'
    )
