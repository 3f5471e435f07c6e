"""The result of `mlir-offload doctor`, and its output on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlir_offload.driver.doctor.trial import Cell, Trial, Verdict
from mlir_offload.toolchain.skew.identity import Severity, ToolFinding, ToolIdentity

# A pipe has no width; this keeps a row on one line for grep.
_PIPE_WIDTH = 180
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


class Installation(Struct, frozen=True):
    """A part that is not installed: its purpose, and the command that installs it."""

    part: str
    purpose: str
    command: str
    is_optional: bool


class DoctorReport(Struct, frozen=True):
    """The results of all checks; `exit_status` is 0 if the default combination works."""

    tools: tuple[ToolIdentity, ...]
    cells: tuple[Cell, ...]
    findings: tuple[ToolFinding, ...]
    to_install: tuple[Installation, ...]
    exit_status: int
    is_quick: bool = False


def summary(report: DoctorReport) -> str:
    """Return the result of the default combination in one sentence."""
    default = [cell for cell in report.cells if cell.combination.is_default]
    said = "; ".join(f"{cell.combination.label}: {cell.ours.verdict}" for cell in default)
    if report.exit_status == 0:
        return f"The default toolchain works: {said}."
    if all(cell.ours.verdict.is_good for cell in default):
        tried = f" ({said})" if said else ""
        return f"The default toolchain is incomplete{tried}."
    return f"The default toolchain does not work: {said}."


def show_report(report: DoctorReport, *, verbose: bool) -> None:
    """Print tools, matrix, findings and install commands."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    if verbose or any(tool.problem for tool in report.tools):
        console.print(_tools(report.tools if verbose else _troubled(report.tools)))
        console.print()
    console.print(_matrix(report.cells))
    for line in _lines(report):
        console.print(line, soft_wrap=True)
    console.print(summary(report), markup=False, soft_wrap=True)


def _troubled(tools: Iterable[ToolIdentity]) -> list[ToolIdentity]:
    return [tool for tool in tools if tool.problem]


def _tools(tools: Sequence[ToolIdentity]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("installation", "part", "says", "writes", "found out"):
        table.add_column(heading, overflow="fold")
    for tool in tools:
        facts = "; ".join(f"{fact.name} {fact.value}" for fact in tool.facts)
        found = Text(tool.problem, style="red") if tool.problem else Text(facts)
        table.add_row(*map(Text, (tool.group, tool.name, tool.said, tool.written)), found)
    return table


def _matrix(cells: Sequence[Cell]) -> Table:
    """Return a row for each combination; the column of clang alone is omitted if it was not tested."""
    has_alone = any(cell.alone is not None for cell in cells)
    table = Table(box=None, pad_edge=False)
    headings = ["", "kind", "for", "lowers", "links", "with", "mlir-offload"]
    for heading in (*headings, *(["clang alone"] if has_alone else []), "through"):
        table.add_column(heading, overflow="fold")
    for cell in cells:
        one = cell.combination
        words = (
            *("*" if one.is_default else "", one.kind, one.arch),
            *(one.producer_name, f"LLVM {one.consumer.version.major}"),
            one.sdk.name if one.sdk else "",
        )
        row = [Text(str(word)) for word in words]
        row += [_verdict(cell.ours)]
        row += [_verdict(cell.alone)] if has_alone else []
        table.add_row(*row, Text(", ".join(cell.adapters)))
    return table


def _verdict(trial: Trial | None) -> Text:
    if trial is None:
        return Text("")
    style = "green" if trial.verdict.is_good else "red"
    return Text(str(trial.verdict), style="yellow" if trial.verdict is Verdict.REFUSED else style)


def _lines(report: DoctorReport) -> Iterator[Text]:
    for verdict, reason, hint, labels in reasons(report.cells):
        yield Text(f"{verdict}: {reason}")
        yield Text(f"    in {', '.join(labels)}", style="dim")
        if hint:
            yield Text(f"    {hint}")
    for cell in report.cells:
        if cell.alone is not None and cell.alone.verdict is Verdict.DROPS:
            yield Text(f"clang alone: {cell.combination.label}: {cell.alone.reason}", style="dim")
    for finding in report.findings:
        where = f"{finding.location}: " if finding.location else ""
        head = Text(f"{finding.severity} {finding.rule}: ", style=_STYLES[finding.severity])
        yield Text.assemble(head, f"{where}{finding.message}")
        yield Text(f"    {finding.hint}")
    for one in report.to_install:
        need = "optional" if one.is_optional else "required"
        yield Text(f"{need}: {one.command} (adds {one.purpose} to {one.part})")


def reasons(cells: Iterable[Cell]) -> list[tuple[Verdict, str, str, tuple[str, ...]]]:
    """Return each reason why combinations fail with mlir-offload once, with the labels of these combinations."""
    found: dict[tuple[Verdict, str, str], list[str]] = {}
    for cell in cells:
        ours = cell.ours
        if not ours.verdict.is_good:
            found.setdefault((ours.verdict, ours.reason, ours.hint), []).append(
                cell.combination.label
            )
    return [(*key, tuple(labels)) for key, labels in found.items()]
